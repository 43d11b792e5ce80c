//! Reads the arrays that a sample program's `.npz` holds.

use super::kernel::Data;
use arenite::tensor::DType;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

/// The arrays of one `.npz`, by name.
pub fn read(path: impl AsRef<Path>) -> BTreeMap<String, Data> {
    let file = std::fs::File::open(path.as_ref()).unwrap();
    let mut archive = zip::ZipArchive::new(file).unwrap();
    let mut arrays = BTreeMap::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).unwrap();
        let name = entry.name().unwrap().trim_end_matches(".npy").to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        arrays.insert(name, parse(&bytes));
    }
    arrays
}

/// One array in NumPy's format 1.0, little-endian, row-major.
fn parse(bytes: &[u8]) -> Data {
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00", "NumPy format 1.0");
    let header_len = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = core::str::from_utf8(&bytes[10..10 + header_len]).unwrap();
    let after = |key: &str| header.split(key).nth(1).unwrap_or_else(|| panic!("{key} in {header}"));
    let descr = after("'descr': '").split('\'').next().unwrap();
    let dtype = match descr {
        "<f4" => DType::Float32,
        "<f8" => DType::Float64,
        "<f2" => DType::Float16,
        "<i8" => DType::Int64,
        "<i4" => DType::Int32,
        "<i2" => DType::Int16,
        "|i1" => DType::Int8,
        "|u1" => DType::UInt8,
        "|b1" => DType::Bool,
        "<u2" => DType::UInt16,
        other => panic!("dtype {other}"),
    };
    assert!(header.contains("'fortran_order': False"), "row-major");
    let shape = after("'shape': (").split(')').next().unwrap();
    let sizes: Vec<usize> = shape
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty())
        .map(|size| size.parse().unwrap())
        .collect();
    Data::of_bytes(dtype, &sizes, &bytes[10 + header_len..])
}
