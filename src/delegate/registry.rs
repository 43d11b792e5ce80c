#![forbid(unsafe_code)]
//! The delegates that methods may use, and which native code they may run.

use super::Delegate;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which native code inside programs may run when a method is loaded.
///
/// Loading a method with such code runs its author's program with the rights of this process; a hash tells
/// which code it is, not whether it can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NativeCode {
    /// Any.
    #[default]
    Allowed,
    /// None.
    Denied,
    /// Only code with one of these SHA-256 digests.
    Only(BTreeSet<[u8; 32]>),
}

impl NativeCode {
    /// Whether code with this SHA-256 digest may run.
    pub fn permits(&self, sha256: &[u8; 32]) -> bool {
        match self {
            Self::Allowed => true,
            Self::Denied => false,
            Self::Only(listed) => listed.contains(sha256),
        }
    }
}

/// Delegates by name: the built-in ones, and those a user added, which win.
#[derive(Clone)]
pub struct DelegateRegistry {
    delegates: Vec<Arc<dyn Delegate>>,
    native_code: NativeCode,
}

impl core::fmt::Debug for DelegateRegistry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DelegateRegistry")
            .field("ids", &self.ids())
            .field("native_code", &self.native_code)
            .finish_non_exhaustive()
    }
}

impl Default for DelegateRegistry {
    fn default() -> Self {
        Self {
            delegates: vec![
                #[cfg(all(target_os = "linux", feature = "cuda"))]
                Arc::new(super::CudaBackend),
            ],
            native_code: NativeCode::default(),
        }
    }
}

impl DelegateRegistry {
    /// The built-in delegates, native code allowed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a delegate, in the place of one of the same name.
    pub fn add(&mut self, delegate: impl Delegate + 'static) {
        self.delegates.retain(|present| present.id() != delegate.id());
        self.delegates.push(Arc::new(delegate));
    }

    /// The delegate of this name.
    pub fn get(&self, id: &str) -> Option<&Arc<dyn Delegate>> {
        self.delegates.iter().find(|delegate| delegate.id() == id)
    }

    /// Every name, in alphabetical order.
    pub fn ids(&self) -> Vec<&'static str> {
        let mut ids: Vec<_> = self.delegates.iter().map(|delegate| delegate.id()).collect();
        ids.sort_unstable();
        ids
    }

    /// Which native code may run.
    pub fn native_code(&self) -> &NativeCode {
        &self.native_code
    }

    /// The same delegates with another rule for native code.
    #[must_use]
    pub fn with_native_code(mut self, native_code: NativeCode) -> Self {
        self.native_code = native_code;
        self
    }
}
