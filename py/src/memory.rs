//! Host memory that Python objects share: aligned, zeroed, freed with its last holder.
//!
//! Deliberately absent: growth, and any reference to the bytes; whoever holds the memory goes through its
//! address, as NumPy and DLPack consumers do.

use std::sync::Arc;

/// What vector units and DLPack consumers like best.
const ALIGN: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGN]);

/// Some bytes on the host. Clones share them.
#[derive(Clone)]
pub(crate) struct Memory {
    #[expect(dead_code, reason = "keeps the bytes, which are only ever reached through `address`")]
    lines: Arc<Vec<Line>>,
    address: *mut u8,
    len: usize,
}

// SAFETY: the bytes belong to no thread; they are written before the memory is handed out, and later only by
// consumers of `address`, who answer for it as NumPy's users do.
unsafe impl Send for Memory {}
// SAFETY: as above; shared access reads the address and the length alone.
unsafe impl Sync for Memory {}

impl Memory {
    /// `len` zero bytes, filled by `fill` before anybody else sees them.
    pub(crate) fn filled<E>(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let mut lines = vec![Line([0; ALIGN]); len.div_ceil(ALIGN).max(1)];
        let address = lines.as_mut_ptr().cast::<u8>();
        // SAFETY: the lines are at least `len` initialised bytes, borrowed by nobody else until `fill` returns.
        fill(unsafe { core::slice::from_raw_parts_mut(address, len) })?;
        Ok(Self { lines: Arc::new(lines), address, len })
    }

    /// The first byte; good as long as a clone of this lives.
    pub(crate) fn address(&self) -> *mut u8 {
        self.address
    }

    /// The bytes, to read while nobody writes them.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that live as long as this; a consumer of `address` who writes them now has a
        // race of their own.
        unsafe { core::slice::from_raw_parts(self.address, self.len) }
    }

    /// Other bytes with the same values.
    pub(crate) fn duplicate(&self) -> Self {
        let copy = Self::filled(self.len, |bytes| {
            // SAFETY: both ranges are `len` bytes, and nobody else sees the new one.
            unsafe { core::ptr::copy_nonoverlapping(self.address, bytes.as_mut_ptr(), bytes.len()) };
            Ok::<(), core::convert::Infallible>(())
        });
        match copy {
            Ok(copy) => copy,
            Err(never) => match never {},
        }
    }
}
