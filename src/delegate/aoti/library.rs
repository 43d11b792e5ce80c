//! Compiled code, loaded: checked, edited, opened once per process, kept for good.
//!
//! ```text
//!   bytes ─┬─► SHA-256 ──────────────────────────────────────────────┐
//!          └─► copy in a memory file: check, edit, bind shims ────────┴─► rule ─► seal ─► dlopen(NOW, LOCAL)
//!          each on a thread of its own, perhaps ahead of time
//! ```
//!
//! Opening a library runs its initialisers, so the digest and the caller's rule are checked before. A library is never
//! closed: its objects may register themselves with the C library, and closing gains 2 MB at most. Deliberately
//! absent: a name that is ever used twice. The dynamic linker finds open libraries by name, so the file descriptor
//! in a name stays open for good too.

use super::elf::Object;
use super::payload::hex;
use super::platform::Platform;
use super::shims;
use crate::delegate::{DelegateError, NativeCode};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::NonNull;
use memmap2::MmapMut;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};

/// The most bytes of code that are loaded.
const CODE_BYTES_MAX: usize = 1 << 30;

static LOADED: Mutex<Option<HashMap<[u8; 32], &'static Library>>> = Mutex::new(None);

/// A loaded library and the functions of its interface that are used here.
#[derive(Debug)]
pub(super) struct Library {
    handle: NonNull<c_void>,
    /// A function by which the code gives a device work itself, past the run's queue.
    past_queue: Option<String>,
}

// SAFETY: a handle of the dynamic linker may be used from any thread; it is never closed.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// What a caller knows of code before it is loaded.
pub(super) struct Code<'a> {
    /// The digest that the program states.
    pub(super) digest: Option<[u8; 32]>,
    /// Which code may run.
    pub(super) rule: &'a NativeCode,
}

/// What was made of code, none of which has run.
pub(super) struct Ready {
    digest: [u8; 32],
    edited: Result<Edited, DelegateError>,
}

/// A private copy of code, edited.
struct Edited {
    code: Private,
    /// A function by which the code gives a device work itself, past the run's queue.
    past_queue: Option<String>,
}

/// Hashes code, and makes the copy that is opened.
pub(super) fn make_ready(bytes: &[u8], platform: Platform) -> Ready {
    std::thread::scope(|scope| {
        // The hash takes longer, so it is what need not wait for a thread.
        let editing = std::thread::Builder::new().spawn_scoped(scope, || edit(bytes, platform));
        let digest = Sha256::digest(bytes).into();
        // Where there is no thread to be had, it is done here.
        let edited = editing.ok().and_then(|editing| editing.join().ok());
        Ready { digest, edited: edited.unwrap_or_else(|| edit(bytes, platform)) }
    })
}

impl Library {
    /// The library of code with this digest, where it is loaded.
    pub(super) fn loaded(digest: &[u8; 32]) -> Option<&'static Self> {
        LOADED.lock().as_ref()?.get(digest).copied()
    }

    /// The library of this code, loaded now or before. `ready` gives what [`make_ready`] does, perhaps sooner.
    pub(super) fn load(
        code: &Code<'_>,
        ready: impl FnOnce() -> Ready,
    ) -> Result<&'static Self, DelegateError> {
        let mut loaded = LOADED.lock();
        let loaded = loaded.get_or_insert_default();
        // Code that is loaded under the digest that the program states was checked then, and it is that code
        // that will run, whatever the bytes are now.
        if let Some(digest) = code.digest
            && let Some(library) = loaded.get(&digest)
        {
            permit(code.rule, &digest)?;
            return Ok(library);
        }
        let Ready { digest, edited } = ready();
        if let Some(stated) = code.digest
            && stated != digest
        {
            let reason =
                format!("its code has the SHA-256 {}, its key states {}", hex(&digest), hex(&stated));
            return Err(DelegateError::Corrupt { reason });
        }
        permit(code.rule, &digest)?;
        if let Some(library) = loaded.get(&digest) {
            return Ok(library);
        }
        let Edited { code, past_queue } = edited?;
        let library: &'static Self = Box::leak(Box::new(Self { handle: code.open()?, past_queue }));
        loaded.insert(digest, library);
        Ok(library)
    }

    /// Why its runs cannot be captured as a graph, or `None` where they can.
    pub(super) fn refuses_capture(&self) -> Option<String> {
        self.past_queue.as_ref().map(|name| format!("its code calls {name}, which cannot be captured"))
    }

    /// The address of a symbol, or `None`.
    pub(super) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is of an open library; the name ends in NUL.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }
}

/// Copies code and edits the copy.
fn edit(bytes: &[u8], platform: Platform) -> Result<Edited, DelegateError> {
    if bytes.len() > CODE_BYTES_MAX {
        let reason = format!("its code has {} bytes, at most {CODE_BYTES_MAX}", bytes.len());
        return Err(DelegateError::Corrupt { reason });
    }
    let mut past_queue = None;
    let code = Private::copy(bytes, |bytes| {
        let mut object =
            Object::parse(bytes).map_err(|error| DelegateError::Corrupt { reason: error.to_string() })?;
        platform.check(&object)?;
        object.make_private("AOTInductor");
        object.clear_executable_stack();
        past_queue = object.undefined().find(|name| platform.goes_past_the_queue(name)).map(str::to_owned);
        object
            .bind(|name| shims::address(name).or_else(|| c_library(name)).or_else(|| platform.resolve(name)));
        check_undefined(&object)?;
        check_glibc(&object)
    })?;
    Ok(Edited { code, past_queue })
}

fn permit(rule: &NativeCode, digest: &[u8; 32]) -> Result<(), DelegateError> {
    if rule.permits(digest) { Ok(()) } else { Err(DelegateError::Denied { sha256: hex(digest) }) }
}

/// Functions that newer C libraries have under new names, served from the old ones.
fn c_library(name: &str) -> Option<u64> {
    let address: *const c_void = match name {
        "__isoc23_strtol" | "__isoc23_strtoll" => libc::strtol as *const c_void,
        "__isoc23_strtoul" | "__isoc23_strtoull" => libc::strtoul as *const c_void,
        _ => return None,
    };
    Some(address.addr() as u64)
}

/// Whether a name belongs to an interface that only this crate can provide to compiled code.
fn is_ours(name: &str) -> bool {
    let rest = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu"));
    name.starts_with("aoti_torch_")
        || rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()))
}

fn check_undefined(object: &Object<'_>) -> Result<(), DelegateError> {
    let mut names: Vec<String> = object.undefined().filter(|name| is_ours(name)).map(operator_name).collect();
    if names.is_empty() {
        return Ok(());
    }
    names.sort_unstable();
    names.dedup();
    Err(DelegateError::MissingOperators { names })
}

/// `aoti_torch_cuda_sort_stable` as `sort_stable (aoti_torch_cuda_sort_stable)`.
fn operator_name(symbol: &str) -> String {
    let operator = symbol.strip_prefix("aoti_torch_cuda_").or_else(|| symbol.strip_prefix("aoti_torch_cpu_"));
    operator.map_or_else(|| symbol.to_owned(), |operator| format!("{operator} ({symbol})"))
}

#[cfg(target_env = "gnu")]
fn check_glibc(object: &Object<'_>) -> Result<(), DelegateError> {
    // SAFETY: it has no requirements.
    let version = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: a text that ends in NUL and lives for good.
    let version = unsafe { CStr::from_ptr(version) };
    let here = version.to_str().ok().and_then(|text| {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.split('.').next()?.parse::<u32>().ok()?))
    });
    match (object.glibc(), here) {
        (Some(needed), Some(here)) if needed > here => Err(DelegateError::Incompatible {
            reason: format!(
                "compiled on a newer Linux: needs glibc {}.{}, this is {}.{}; export on an older distribution",
                needed.0, needed.1, here.0, here.1
            ),
        }),
        _ => Ok(()),
    }
}

#[cfg(not(target_env = "gnu"))]
fn check_glibc(_: &Object<'_>) -> Result<(), DelegateError> {
    Ok(())
}

fn refused(reason: String) -> DelegateError {
    DelegateError::Unavailable { reason }
}

/// A private copy of code.
enum Private {
    /// In memory, to be sealed.
    File(File),
    /// Where the system has no such files.
    Bytes(MmapMut),
}

impl Private {
    fn copy(
        code: &[u8],
        edit: impl FnOnce(&mut [u8]) -> Result<(), DelegateError>,
    ) -> Result<Self, DelegateError> {
        let text = |error: std::io::Error| refused(format!("memory for its code: {error}"));
        let Ok(mut file) = memory_file() else {
            let mut bytes = MmapMut::map_anon(code.len().max(1)).map_err(text)?;
            bytes[..code.len()].copy_from_slice(code);
            edit(&mut bytes)?;
            return Ok(Self::Bytes(bytes));
        };
        // Written rather than copied to a mapping: only pages that are edited are ever mapped here.
        file.write_all(if code.is_empty() { &[0] } else { code }).map_err(text)?;
        // SAFETY: a file in memory that nobody else has; it is neither cut nor written elsewhere.
        let mut bytes = unsafe { MmapMut::map_mut(&file) }.map_err(text)?;
        edit(&mut bytes)?;
        Ok(Self::File(file))
    }

    /// Opens the code, from memory or else from a private file.
    fn open(self) -> Result<NonNull<c_void>, DelegateError> {
        let failed = |first: &str, second: String| {
            refused(format!("its code cannot be loaded: {first}; from a file: {second}"))
        };
        let file = match self {
            Self::File(file) => file,
            Self::Bytes(bytes) => {
                return open_private_file(&bytes).map_err(|second| failed("memfd_create failed", second));
            }
        };
        let descriptor = file.as_raw_fd();
        let opened = seal(&file).and_then(|()| open_path(&format!("/proc/self/fd/{descriptor}")));
        let opened = opened.or_else(|first| {
            let mut bytes = Vec::new();
            let read = (&file).seek(SeekFrom::Start(0)).and_then(|_| (&file).read_to_end(&mut bytes));
            read.map_err(|error| failed(&first, error.to_string()))?;
            open_private_file(&bytes).map_err(|second| failed(&first, second))
        });
        // Stays open: see the head of this file. A name is not used again, even of what could not be opened.
        let _ = file.into_raw_fd();
        opened
    }
}

fn open_path(path: &str) -> Result<NonNull<c_void>, String> {
    let path = CString::new(path).map_err(|error| error.to_string())?;
    // SAFETY: the path ends in NUL. The object's initialisers run here: the caller's rule allowed that.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    NonNull::new(handle).ok_or_else(|| {
        // SAFETY: it has no requirements; the text is this thread's and lives until its next call.
        let text = unsafe { libc::dlerror() };
        if text.is_null() {
            return "unknown reason".into();
        }
        // SAFETY: not null, so a text that ends in NUL.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    })
}

fn os_error(call: &str) -> String {
    format!("{call}: {}", std::io::Error::last_os_error())
}

/// A new file in memory.
fn memory_file() -> Result<File, String> {
    let name: *const c_char = c"arenite-code".as_ptr();
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends in NUL.
    let mut descriptor = unsafe { libc::memfd_create(name, flags | libc::MFD_EXEC) };
    if descriptor < 0 {
        // Kernels before 6.3 do not know the flag.
        // SAFETY: as above.
        descriptor = unsafe { libc::memfd_create(name, flags) };
    }
    if descriptor < 0 {
        return Err(os_error("memfd_create"));
    }
    // SAFETY: it was just opened and belongs to nobody else.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Lets nobody change a file in memory any more.
fn seal(file: &File) -> Result<(), String> {
    let seals: c_int = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    // SAFETY: the descriptor is open; sealing takes one number.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
        return Err(os_error("sealing"));
    }
    Ok(())
}

/// Opens the code from a file that only this user can reach, and removes the file.
fn open_private_file(bytes: &[u8]) -> Result<NonNull<c_void>, String> {
    use std::os::unix::fs::OpenOptionsExt;
    let template = std::env::temp_dir().join("arenite-XXXXXX");
    let template =
        CString::new(template.into_os_string().into_encoded_bytes()).map_err(|error| error.to_string())?;
    let template = template.into_raw();
    // SAFETY: a writable text that ends in NUL and in the six X that the call replaces.
    let made = unsafe { libc::mkdtemp(template) };
    // SAFETY: it came from `into_raw` above; the call changed characters, not the length.
    let folder = unsafe { CString::from_raw(template) };
    if made.is_null() {
        return Err(os_error("mkdtemp"));
    }
    let folder = std::path::PathBuf::from(folder.to_string_lossy().into_owned());
    let path = folder.join("code.so");
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(bytes));
    // The mapping outlives the name; the folder's random name is not used again.
    let opened = written.map_err(|error| error.to_string()).and_then(|()| open_path(&path.to_string_lossy()));
    drop(std::fs::remove_file(&path));
    drop(std::fs::remove_dir(&folder));
    opened
}
