#![forbid(unsafe_code)]
//! How a program is opened: its data files, and whether files are mapped.

use super::bytes::ProgramBytes;
use super::data::DataFile;
use super::error::{Fault, ProgramError, Refusal};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where the bytes of a data file come from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DataSource<'a> {
    /// A file.
    File(PathBuf),
    /// Bytes, which are copied.
    Bytes(&'a [u8]),
}

/// How a program is opened.
///
/// # Examples
/// ```
/// use arenite::program::ProgramOptions;
/// let options = ProgramOptions::new().with_data_file("weights.ptd").with_mmap(false);
/// ```
#[derive(Clone, Debug)]
pub struct ProgramOptions<'a> {
    pub(super) data: Vec<DataSource<'a>>,
    pub(super) mmap: bool,
}

impl Default for ProgramOptions<'_> {
    fn default() -> Self {
        Self { data: Vec::new(), mmap: true }
    }
}

impl<'a> ProgramOptions<'a> {
    /// No data files; large files are mapped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a data file (`.ptd`). No key may be in two of them.
    #[must_use]
    pub fn with_data_file(mut self, path: impl AsRef<Path>) -> Self {
        self.data.push(DataSource::File(path.as_ref().to_owned()));
        self
    }

    /// Adds the bytes of a data file.
    #[must_use]
    pub fn with_data_bytes(mut self, bytes: &'a [u8]) -> Self {
        self.data.push(DataSource::Bytes(bytes));
        self
    }

    /// Maps large files (as by default), or reads every file into memory.
    #[must_use]
    pub fn with_mmap(mut self, mmap: bool) -> Self {
        self.mmap = mmap;
        self
    }

    /// Opens and checks the data files, also against each other.
    pub(super) fn open_data_files(&self) -> Result<Vec<DataFile>, ProgramError> {
        let mut files = Vec::with_capacity(self.data.len());
        for (number, source) in (1_u32..).zip(&self.data) {
            files.push(match source {
                DataSource::File(path) => {
                    let bytes = ProgramBytes::open(path, self.mmap, true)?;
                    DataFile::new(path.to_string_lossy().into(), bytes, number)?
                }
                DataSource::Bytes(bytes) => {
                    let label = format!("<data {number}>").into();
                    DataFile::new(label, ProgramBytes::copy_of(bytes), number)?
                }
            });
        }
        check_keys(&files)?;
        Ok(files)
    }
}

/// Refuses a key that two data files have.
fn check_keys(files: &[DataFile]) -> Result<(), ProgramError> {
    if files.len() < 2 {
        return Ok(());
    }
    let mut seen = BTreeMap::new();
    for file in files {
        for entry in file.entries() {
            if let Some(first) = seen.insert(&*entry.key, &file.label) {
                let fault = Fault::DataTwice { key: entry.key.clone(), first: first.clone() };
                return Err(Refusal::from(fault).into_error(&file.label, None, true));
            }
        }
    }
    Ok(())
}
