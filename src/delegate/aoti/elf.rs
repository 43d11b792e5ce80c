#![forbid(unsafe_code)]
//! A shared object in memory: its dynamic symbols, what it needs, and the edits made before it is loaded.
//!
//! ```text
//!   program headers ─► PT_LOAD (address → file offset)   PT_GNU_STACK   PT_DYNAMIC
//!                                                                        └► symbols, strings, hash, versions
//! ```
//!
//! The edits work on a private copy of the bytes:
//!
//! * [`Object::make_private`]: symbols bound `GNU_UNIQUE` are merged by name over the whole process, so two
//!   such objects, each with its own C++ library inside, would share half of each other's state and crash. Where
//!   that library is inside, all but the interface becomes local: nothing is looked up by name any more;
//! * [`Object::clear_executable_stack`]: nothing needs it, and newer C libraries refuse to load such objects;
//! * [`Object::bind`]: an undefined symbol gets the address of a function of this process, as a local absolute
//!   symbol. The dynamic linker then asks no other library, so nothing has to be made visible to all, and
//!   no other library that provides the same names can come in between.
//!
//! Every offset is checked against the bytes, every chain has an end. Deliberately absent: loading.

use std::collections::BTreeSet;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_STACK: u32 = 0x6474_e551;
const DT_NEEDED: u64 = 1;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_VERNEED: u64 = 0x6fff_fffe;
const SYMBOL_SIZE: usize = 24;
const SHN_ABS: u16 = 0xfff1;
const STB_LOCAL: u8 = 0;
const STB_GLOBAL: u8 = 1;
const STB_WEAK: u8 = 2;
const STB_GNU_UNIQUE: u8 = 10;
const STT_FUNC: u8 = 2;
const STV_HIDDEN: u8 = 2;
const VER_FLG_WEAK: u8 = 2;
const SYMBOLS_MAX: usize = 1 << 22;

/// Why bytes are not a shared object that can be loaded here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the code is not a loadable shared object: {0}")]
pub(crate) struct ElfError(String);

fn fail<T>(text: impl Into<String>) -> Result<T, ElfError> {
    Err(ElfError(text.into()))
}

/// A range of memory that the object maps from its file.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    offset: usize,
    size: usize,
}

/// One symbol of the dynamic table.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    /// Where its entry is in the file.
    at: usize,
    name: usize,
    binding: u8,
    section: u16,
    value: u64,
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "kernel images are a device's matter"))]
    size: u64,
}

/// One version that the object needs of another library.
#[derive(Clone, Debug)]
struct Version {
    /// Where its entry is in the file.
    at: usize,
    index: u16,
    name: String,
}

/// A checked private copy of a shared object.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    bytes: &'a mut [u8],
    segments: Vec<Segment>,
    stack_flags_at: Option<usize>,
    symbols: Vec<Symbol>,
    /// File offset and size of the string table.
    strings: (usize, usize),
    /// File offset of the version index of each symbol.
    version_indices: Option<usize>,
    versions: Vec<Version>,
    /// Whether another library provides C++'s own.
    needs_cpp_library: bool,
}

fn read<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], ElfError> {
    let chunk = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    chunk.copied().ok_or_else(|| ElfError(format!("{N} bytes at offset {at} of {}", bytes.len())))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, ElfError> {
    read(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, ElfError> {
    read(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, ElfError> {
    read(bytes, at).map(u64::from_le_bytes)
}

fn size_at(bytes: &[u8], at: usize) -> Result<usize, ElfError> {
    usize::try_from(u64_at(bytes, at)?).or_else(|_| fail(format!("number at offset {at} is too large")))
}

fn add(a: usize, b: usize) -> Result<usize, ElfError> {
    a.checked_add(b).ok_or_else(|| ElfError(format!("offset {a} + {b} overflows")))
}

impl<'a> Object<'a> {
    /// Checks a shared object, to edit the bytes in place.
    pub(crate) fn parse(bytes: &'a mut [u8]) -> Result<Self, ElfError> {
        check_header(bytes)?;
        check_sections(bytes)?;
        let mut object = Self {
            bytes,
            segments: Vec::new(),
            stack_flags_at: None,
            symbols: Vec::new(),
            strings: (0, 0),
            version_indices: None,
            versions: Vec::new(),
            needs_cpp_library: false,
        };
        let dynamic = object.read_program_headers()?;
        let table = object.read_dynamic(dynamic)?;
        object.read_symbols(&table)?;
        object.read_versions(&table)?;
        Ok(object)
    }

    /// The program headers: fills the segments, gives offset and size of the dynamic table.
    fn read_program_headers(&mut self) -> Result<(usize, usize), ElfError> {
        let (start, size) = (size_at(self.bytes, 32)?, usize::from(u16_at(self.bytes, 54)?));
        let count = usize::from(u16_at(self.bytes, 56)?);
        if size != 56 {
            return fail(format!("program headers of {size} bytes, expected 56"));
        }
        let mut dynamic = None;
        for index in 0..count {
            let at = add(start, index * size)?;
            let kind = u32_at(self.bytes, at)?;
            let (offset, file_size) = (size_at(self.bytes, add(at, 8)?)?, size_at(self.bytes, at + 32)?);
            match kind {
                PT_LOAD => {
                    if add(offset, file_size)? > self.bytes.len() {
                        return fail(format!("segment {index} ends past the end of the file"));
                    }
                    let address = u64_at(self.bytes, at + 16)?;
                    self.segments.push(Segment { address, offset, size: file_size });
                }
                PT_DYNAMIC => dynamic = Some((offset, file_size)),
                PT_GNU_STACK => self.stack_flags_at = Some(at + 4),
                _ => {}
            }
        }
        dynamic.ok_or_else(|| ElfError("it has no dynamic table".into()))
    }

    /// The dynamic table; fills the string table.
    fn read_dynamic(&mut self, (offset, size): (usize, usize)) -> Result<Dynamic, ElfError> {
        let mut table = Dynamic::default();
        for index in 0..size / 16 {
            let at = add(offset, index * 16)?;
            let (tag, value) = (u64_at(self.bytes, at)?, u64_at(self.bytes, add(at, 8)?)?);
            match tag {
                0 => break,
                DT_NEEDED => table.needed.push(value),
                DT_HASH => table.hash = Some(value),
                DT_GNU_HASH => table.gnu_hash = Some(value),
                DT_STRTAB => table.strings = Some(value),
                DT_STRSZ => table.strings_size = value,
                DT_SYMTAB => table.symbols = Some(value),
                DT_VERSYM => table.version_indices = Some(value),
                DT_VERNEED => table.versions = Some(value),
                _ => {}
            }
        }
        let Some(strings) = table.strings else { return fail("it has no string table") };
        let start = self.offset_of(strings)?;
        let len = usize::try_from(table.strings_size).or_else(|_| fail("string table too large"))?;
        if add(start, len)? > self.bytes.len() {
            return fail("the string table ends past the end of the file");
        }
        self.strings = (start, len);
        let needs = |name: &u64| {
            let name = usize::try_from(*name).ok().and_then(|name| self.string(name));
            name.is_some_and(|name| name.starts_with("libstdc++.") || name.starts_with("libc++."))
        };
        self.needs_cpp_library = table.needed.iter().any(needs);
        Ok(table)
    }

    /// The file offset of an address.
    fn offset_of(&self, address: u64) -> Result<usize, ElfError> {
        for segment in &self.segments {
            let inside = address.checked_sub(segment.address).and_then(|inside| usize::try_from(inside).ok());
            if let Some(inside) = inside.filter(|&inside| inside < segment.size) {
                return add(segment.offset, inside);
            }
        }
        fail(format!("address {address} is in no segment"))
    }

    fn string(&self, name: usize) -> Option<&str> {
        let (start, len) = self.strings;
        let bytes = self.bytes.get(start..start + len)?.get(name..)?;
        core::str::from_utf8(bytes.split(|&byte| byte == 0).next()?).ok()
    }

    fn read_symbols(&mut self, table: &Dynamic) -> Result<(), ElfError> {
        let Some(symbols) = table.symbols else { return fail("it has no symbol table") };
        let start = self.offset_of(symbols)?;
        let count = match (table.gnu_hash, table.hash) {
            (Some(hash), _) => self.count_by_gnu_hash(self.offset_of(hash)?)?,
            (None, Some(hash)) => u32_at(self.bytes, add(self.offset_of(hash)?, 4)?)? as usize,
            (None, None) => return fail("it has no symbol hash table"),
        };
        if count > SYMBOLS_MAX {
            return fail(format!("{count} symbols, at most {SYMBOLS_MAX}"));
        }
        for index in 0..count {
            let at = add(start, index * SYMBOL_SIZE)?;
            let entry: [u8; SYMBOL_SIZE] = read(self.bytes, at)?;
            self.symbols.push(Symbol {
                at,
                name: u32_at(&entry, 0)? as usize,
                binding: entry[4] >> 4,
                section: u16_at(&entry, 6)?,
                value: u64_at(&entry, 8)?,
                size: u64_at(&entry, 16)?,
            });
        }
        Ok(())
    }

    /// The number of symbols: the last bucket's chain ends at the last symbol.
    fn count_by_gnu_hash(&self, at: usize) -> Result<usize, ElfError> {
        let buckets = u32_at(self.bytes, at)? as usize;
        let first = u32_at(self.bytes, add(at, 4)?)? as usize;
        let bloom = u32_at(self.bytes, add(at, 8)?)? as usize;
        let buckets_at = add(at, 16 + bloom * 8)?;
        let mut last = 0;
        for index in 0..buckets {
            last = last.max(u32_at(self.bytes, add(buckets_at, index * 4)?)? as usize);
        }
        if last < first {
            return Ok(first);
        }
        let chains_at = add(buckets_at, buckets * 4)?;
        // Ends: each turn reads further into a file of finite size.
        while u32_at(self.bytes, add(chains_at, (last - first) * 4)?)? & 1 == 0 {
            last += 1;
        }
        Ok(last + 1)
    }

    fn read_versions(&mut self, table: &Dynamic) -> Result<(), ElfError> {
        let (Some(indices), Some(needs)) = (table.version_indices, table.versions) else { return Ok(()) };
        self.version_indices = Some(self.offset_of(indices)?);
        let mut file_at = self.offset_of(needs)?;
        loop {
            let mut at = add(file_at, u32_at(self.bytes, add(file_at, 8)?)? as usize)?;
            for _ in 0..u16_at(self.bytes, add(file_at, 2)?)? {
                let name = self.string(u32_at(self.bytes, add(at, 8)?)? as usize);
                let name = name.ok_or_else(|| ElfError("version name outside the string table".into()))?;
                let version =
                    Version { at, index: u16_at(self.bytes, add(at, 6)?)? & 0x7fff, name: name.into() };
                self.versions.push(version);
                at = add(at, u32_at(self.bytes, add(at, 12)?)? as usize)?;
            }
            if self.versions.len() > SYMBOLS_MAX {
                return fail("its list of versions does not end");
            }
            match u32_at(self.bytes, add(file_at, 12)?)? as usize {
                0 => return Ok(()),
                step => file_at = add(file_at, step)?,
            }
        }
    }

    /// The names of functions that another object must provide, weak ones left out.
    pub(crate) fn undefined(&self) -> impl Iterator<Item = &str> {
        let required = |symbol: &&Symbol| symbol.section == 0 && symbol.binding == STB_GLOBAL;
        self.symbols
            .iter()
            .filter(required)
            .filter_map(|symbol| self.string(symbol.name))
            .filter(|name| !name.is_empty())
    }

    /// The defined symbols whose names begin with `start`, each with the file bytes from its address on.
    #[cfg(feature = "cuda")]
    pub(crate) fn defined(&self, start: &str) -> impl Iterator<Item = (&str, &[u8])> {
        let defined = |symbol: &&Symbol| symbol.section != 0 && symbol.section != SHN_ABS;
        let found = self.symbols.iter().filter(defined).filter(move |symbol| self.is_named(symbol, start));
        found.filter_map(|symbol| {
            let offset = self.offset_of(symbol.value).ok()?;
            let bytes = self.bytes.get(offset..)?;
            let len = usize::try_from(symbol.size).ok()?;
            Some((self.string(symbol.name)?, if len == 0 { bytes } else { bytes.get(..len)? }))
        })
    }

    /// The newest version of the C library it needs, as `(2, 38)`, where another library must provide it.
    pub(crate) fn glibc(&self) -> Option<(u32, u32)> {
        let parse = |version: &Version| {
            if self.bytes.get(version.at + 4)? & VER_FLG_WEAK != 0 {
                return None;
            }
            let (major, minor) = version.name.strip_prefix("GLIBC_")?.split_once('.')?;
            Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
        };
        self.versions.iter().filter_map(parse).max()
    }

    /// Leaves no symbol that is merged by name over the process; where the C++ library is inside, no defined
    /// one but those whose names begin with `interface` is seen by name at all.
    pub(crate) fn make_private(&mut self, interface: &str) {
        for index in 0..self.symbols.len() {
            let symbol = self.symbols[index];
            let named =
                symbol.section != 0 && matches!(symbol.binding, STB_GLOBAL | STB_WEAK | STB_GNU_UNIQUE);
            let binding = if named && !self.needs_cpp_library && !self.is_named(&symbol, interface) {
                STB_LOCAL
            } else if symbol.binding == STB_GNU_UNIQUE {
                STB_GLOBAL
            } else {
                continue;
            };
            let info = &mut self.bytes[symbol.at + 4];
            *info = (binding << 4) | (*info & 0xf);
            self.symbols[index].binding = binding;
        }
    }

    /// Whether a symbol's name begins with `start`.
    fn is_named(&self, symbol: &Symbol, start: &str) -> bool {
        let (from, len) = self.strings;
        let names = self.bytes.get(from..from + len).and_then(|names| names.get(symbol.name..));
        names.is_some_and(|names| names.starts_with(start.as_bytes()))
    }

    /// Takes the wish for an executable stack away; says whether there was one.
    pub(crate) fn clear_executable_stack(&mut self) -> bool {
        let Some(flags) = self.stack_flags_at.and_then(|at| self.bytes.get_mut(at)) else { return false };
        let wanted = *flags & 1 != 0;
        *flags &= !1;
        wanted
    }

    /// Gives undefined symbols the addresses that `resolve` knows, for this object alone; gives their number.
    ///
    /// A version of a library that only such symbols needed is marked as not required.
    pub(crate) fn bind(&mut self, mut resolve: impl FnMut(&str) -> Option<u64>) -> usize {
        let mut bound = BTreeSet::new();
        let wanted: Vec<(usize, u64)> = (0..self.symbols.len())
            .filter(|&index| self.symbols[index].section == 0)
            .filter_map(|index| Some((index, resolve(self.string(self.symbols[index].name)?)?)))
            .collect();
        for &(index, address) in &wanted {
            let symbol = &mut self.symbols[index];
            (symbol.binding, symbol.section, symbol.value) = (STB_LOCAL, SHN_ABS, address);
            let entry = &mut self.bytes[symbol.at..symbol.at + SYMBOL_SIZE];
            entry[4] = (STB_LOCAL << 4) | STT_FUNC;
            entry[5] = STV_HIDDEN;
            entry[6..8].copy_from_slice(&SHN_ABS.to_le_bytes());
            entry[8..16].copy_from_slice(&address.to_le_bytes());
            bound.insert(index);
        }
        self.relax_versions(&bound);
        bound.len()
    }

    fn relax_versions(&mut self, bound: &BTreeSet<usize>) {
        let Some(indices_at) = self.version_indices else { return };
        let version_of =
            |index: usize| u16_at(self.bytes, indices_at + index * 2).map(|version| version & 0x7fff);
        let freed: BTreeSet<u16> = bound.iter().filter_map(|&index| version_of(index).ok()).collect();
        let still_used: BTreeSet<u16> = (0..self.symbols.len())
            .filter(|index| !bound.contains(index))
            .filter_map(|index| version_of(index).ok())
            .collect();
        for version in &self.versions {
            let all_bound = freed.contains(&version.index) && !still_used.contains(&version.index);
            if let Some(flags) = self.bytes.get_mut(version.at + 4).filter(|_| all_bound) {
                *flags |= VER_FLG_WEAK;
            }
        }
    }
}

/// The entries of a dynamic table that are read here, as addresses.
#[derive(Default)]
struct Dynamic {
    needed: Vec<u64>,
    hash: Option<u64>,
    gnu_hash: Option<u64>,
    strings: Option<u64>,
    strings_size: u64,
    symbols: Option<u64>,
    version_indices: Option<u64>,
    versions: Option<u64>,
}

/// The section headers, which nothing here reads, are the last thing in a file: without them it was cut.
fn check_sections(bytes: &[u8]) -> Result<(), ElfError> {
    let (start, size, count) = (size_at(bytes, 40)?, u16_at(bytes, 58)?, u16_at(bytes, 60)?);
    if add(start, usize::from(size) * usize::from(count))? > bytes.len() {
        return fail("the section headers end past the end of the file: it was cut");
    }
    Ok(())
}

fn check_header(bytes: &[u8]) -> Result<(), ElfError> {
    if !bytes.starts_with(b"\x7fELF") {
        return fail("it does not start as an ELF file does");
    }
    let ident: [u8; 6] = read(bytes, 0)?;
    if ident[4..] != [2, 1] {
        return fail("it is not 64-bit little-endian");
    }
    let (kind, machine) = (u16_at(bytes, 16)?, u16_at(bytes, 18)?);
    if kind != 3 {
        return fail(format!("its file type is {kind}, expected 3 (shared object)"));
    }
    if machine != MACHINE.0 {
        let name = match machine {
            62 => "x86-64",
            183 => "AArch64",
            _ => "another machine",
        };
        return fail(format!("it was compiled for {name}, this machine is {}", MACHINE.1));
    }
    Ok(())
}

#[cfg(target_arch = "aarch64")]
const MACHINE: (u16, &str) = (183, "AArch64");
#[cfg(not(target_arch = "aarch64"))]
const MACHINE: (u16, &str) = (62, "x86-64");
