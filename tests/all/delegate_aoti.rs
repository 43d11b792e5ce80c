//! Code compiled by `AOTInductor` runs through the loader, the shims and the arenas, on the CPU.
//!
//! `tests/data/aoti` holds the objects, compiled from the models that its README lists, and what eager PyTorch
//! gave for them. They contain PyTorch's template code: its licence lies beside them.

use super::support::kernel::Data;
use super::support::npz;
use arenite::delegate::{
    AotiCpuBackend, Delegate, DelegateCall, DelegateError, DelegateLoad, DelegatePayload, LoadedDelegate,
    NamedData, NativeCode,
};
use arenite::tensor::{DType, Tensor};
use arenite::value::{Value, ValueId};
use arenite::{ArenaSet, HostSpace, Recording, SpaceId};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/aoti").join(name)
}

fn object(name: &str) -> Vec<u8> {
    let packed = std::fs::read(path(&format!("{name}.so.z"))).unwrap();
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A program's worth of named data and a payload over it.
struct Part {
    named: BTreeMap<String, Vec<u8>>,
    payload: Vec<u8>,
    digest: [u8; 32],
    arrays: BTreeMap<String, Data>,
}

impl NamedData for Part {
    fn get(&self, key: &str) -> Option<&[u8]> {
        self.named.get(key).map(Vec::as_slice)
    }

    fn sources(&self) -> String {
        "m.pte".into()
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
    out.extend(text.as_bytes());
}

impl Part {
    /// The object of this name with these constants, bound one by one.
    fn new(name: &str, constants: &[&str]) -> Self {
        let code = object(name);
        let digest: [u8; 32] = Sha256::digest(&code).into();
        let key = format!("{}_so_blob", hex(&digest));
        let arrays = npz::read(path(&format!("{name}.npz")));
        let mut payload = b"ETCUDAFQN3".to_vec();
        put_text(&mut payload, &key);
        payload.extend(u32::try_from(constants.len()).unwrap().to_le_bytes());
        let mut named = BTreeMap::from([(key, code)]);
        for constant in constants {
            let data = &arrays[&format!("const:{constant}")];
            let storage = format!("cuda_fqn_weight:cpu:{constant}");
            put_text(&mut payload, constant);
            put_text(&mut payload, &storage);
            payload.extend((data.bytes.len() as u64).to_le_bytes());
            payload.extend(6_i32.to_le_bytes());
            payload.extend(0_i32.to_le_bytes());
            payload.extend(0_i64.to_le_bytes());
            payload.extend(u32::try_from(data.sizes.len()).unwrap().to_le_bytes());
            let mut strides = vec![1_i64; data.sizes.len()];
            for dim in (1..data.sizes.len()).rev() {
                strides[dim - 1] = strides[dim] * data.sizes[dim].cast_signed() as i64;
            }
            for value in data.sizes.iter().map(|&size| size.cast_signed() as i64).chain(strides) {
                payload.extend(value.to_le_bytes());
            }
            named.insert(storage, data.bytes.clone());
        }
        Self { named, payload, digest, arrays }
    }

    fn load_with(
        &self,
        arenas: &ArenaSet,
        sharing: usize,
        native_code: &NativeCode,
    ) -> Result<Box<dyn LoadedDelegate>, DelegateError> {
        let payload = DelegatePayload {
            method: "forward",
            index: 0,
            processed: &self.payload,
            compile_specs: &[],
            named: self,
            args_len: 0,
            space: SpaceId::HOST,
        };
        std::thread::scope(|scope| {
            let prepared = AotiCpuBackend.prepare(&payload).map(|work| scope.spawn(work));
            let queue = None;
            AotiCpuBackend.load(&mut DelegateLoad { payload, prepared, arenas, queue, sharing, native_code })
        })
    }

    fn load(&self) -> Box<dyn LoadedDelegate> {
        self.load_with(&ArenaSet::host(), 0, &NativeCode::Allowed).unwrap()
    }

    fn error(&self) -> String {
        match self.load_with(&ArenaSet::host(), 0, &NativeCode::Allowed) {
            Ok(_) => panic!("it loaded"),
            Err(error) => error.to_string(),
        }
    }

    fn arguments(&self) -> Arguments {
        let of = |kind: &str| {
            let name = |index: usize| format!("{kind}{index}");
            (0..).map_while(|index| self.arrays.get(&name(index)).cloned()).collect::<Vec<_>>()
        };
        Arguments::new(of("in"), of("out"))
    }
}

/// Tensors over owned memory: inputs, and stale outputs to be written.
struct Arguments {
    tensors: Vec<Tensor>,
    values: Vec<Value>,
    ids: Vec<ValueId>,
    wanted: Vec<Data>,
    inputs: usize,
    _memory: Vec<Box<[u128]>>,
}

impl Arguments {
    fn new(inputs: Vec<Data>, wanted: Vec<Data>) -> Self {
        let count = inputs.len();
        let stale = wanted.iter().map(|data| Data::stale(data.dtype, &data.sizes));
        let all: Vec<Data> = inputs.into_iter().chain(stale).collect();
        let mut memory = Vec::new();
        let mut tensors = Vec::new();
        for data in &all {
            let mut block = vec![0_u128; data.bytes.len().div_ceil(16).max(1)].into_boxed_slice();
            bytemuck::cast_slice_mut(&mut block)[..data.bytes.len()].copy_from_slice(&data.bytes);
            let mut tensor = Tensor::new(data.dtype, &data.sizes, &data.order, false).unwrap();
            let address = core::ptr::NonNull::new(block.as_mut_ptr().cast::<u8>()).unwrap();
            // SAFETY: the block is kept beside the tensor and reached through nothing else.
            unsafe { tensor.bind(address, data.bytes.len(), SpaceId::HOST, true) };
            memory.push(block);
            tensors.push(tensor);
        }
        let tags: Vec<u32> = (0..u32::try_from(tensors.len()).unwrap()).collect();
        Self {
            tensors,
            values: tags.iter().map(|&tag| Value::Tensor(tag)).collect(),
            ids: tags.iter().map(|&tag| ValueId(tag)).collect(),
            wanted,
            inputs: count,
            _memory: memory,
        }
    }

    fn run(&mut self, delegate: &mut dyn LoadedDelegate) -> Result<(), DelegateError> {
        delegate.execute(&mut DelegateCall::new(&self.values, &mut self.tensors, &self.ids, None))
    }

    fn output(&self, index: usize) -> Vec<u8> {
        self.tensors[self.inputs + index]
            .read_bytes()
            .unwrap()
            .iter()
            .map(arenite::tensor::ReadCell::get)
            .collect()
    }

    /// The largest difference to what eager PyTorch gave.
    fn worst_error(&self) -> f32 {
        let mut worst = 0_f32;
        for (index, want) in self.wanted.iter().enumerate() {
            let got = self.output(index);
            let got: Vec<f32> = got.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect();
            let want = want.get::<f32>();
            assert_eq!(got.len(), want.len());
            for (got, want) in got.iter().zip(&want) {
                worst = worst.max((got - want).abs());
            }
        }
        worst
    }

    fn spoil(&self) {
        for tensor in &self.tensors[self.inputs..] {
            tensor.write_bytes().unwrap().iter().for_each(|cell| cell.set(0x5a));
        }
    }
}

#[test]
fn every_object_gives_what_eager_gave_in_the_first_and_in_later_runs() {
    let parts = [
        ("seed_net", vec![]),
        ("seed_net_dyn", vec![]),
        ("affine", vec!["w", "b"]),
        ("two_same", vec![]),
        ("kv", vec!["kv_cache"]),
    ];
    // All loaded before any is run: each has half a C++ library inside.
    let mut loaded: Vec<_> = parts
        .iter()
        .map(|(name, constants)| {
            let part = Part::new(name, constants);
            let delegate = part.load();
            (name, part.arguments(), delegate)
        })
        .collect();
    for (name, arguments, delegate) in &mut loaded {
        for run in 0..4 {
            arguments.spoil();
            arguments.run(&mut **delegate).unwrap();
            let worst = arguments.worst_error();
            let bound = if **name == "affine" { 1e-6 } else { 0.0 };
            assert!(worst <= bound, "{name}, run {run}: {worst}");
        }
    }
}

#[test]
fn weights_in_one_blob_are_read_by_the_code_itself() {
    let mut part = Part::new("affine_blob", &[]);
    let key = format!("{}_so_blob", hex(&part.digest));
    part.payload = format!("{key}\nw_weights_blob\0").into_bytes();
    let missing = part.error();
    assert!(missing.contains("w_weights_blob") && missing.contains("128 bytes"), "{missing}");
    let blob = std::fs::read(path("affine_blob.blob")).unwrap();
    part.named.insert("w_weights_blob".into(), blob[..127].to_vec());
    assert!(part.error().contains("127 bytes, expected 128"), "{}", part.error());
    part.named.insert("w_weights_blob".into(), blob);
    let (mut delegate, mut arguments) = (part.load(), part.arguments());
    arguments.run(&mut *delegate).unwrap();
    assert!(arguments.worst_error() <= 1e-6, "{}", arguments.worst_error());
}

#[test]
fn two_loads_of_one_object_keep_apart_or_share_state_as_told() {
    let part = Part::new("kv", &["kv_cache"]);
    let arenas = ArenaSet::host();
    let load = |sharing| part.load_with(&arenas, sharing, &NativeCode::Allowed).unwrap();
    let (mut one, mut apart, mut first, mut second) = (load(0), load(0), load(7), load(7));
    let mut cache = vec![0; 128];
    let filled = part.arrays["after:kv_cache"].bytes.clone();
    for (writer, reader, shared) in [(&mut one, &mut apart, false), (&mut first, &mut second, true)] {
        assert_eq!((&*writer.state()[0].name, &*writer.state()[0].sizes), ("kv_cache", &[8, 4][..]));
        part.arguments().run(&mut **writer).unwrap();
        writer.read_state(0, &mut cache, None).unwrap();
        assert_eq!(cache, filled);
        reader.read_state(0, &mut cache, None).unwrap();
        assert_eq!(cache == filled, shared);
        reader.write_state(0, &[1; 128], None).unwrap();
        writer.reset_state(None).unwrap();
        reader.read_state(0, &mut cache, None).unwrap();
        assert_eq!(cache == [0; 128], shared);
        assert!(
            writer.read_state(0, &mut [0; 5], None).is_err() && writer.read_state(1, &mut [], None).is_err()
        );
    }
}

#[test]
fn the_rule_for_native_code_is_asked_before_any_of_it_runs() {
    let part = Part::new("seed_net", &[]);
    let arenas = ArenaSet::host();
    let load = |rule: &NativeCode| part.load_with(&arenas, 0, rule).map(|_| ());
    let denied = load(&NativeCode::Denied).unwrap_err();
    assert!(denied.to_string().contains(&hex(&part.digest)), "{denied}");
    load(&NativeCode::Only([[0; 32]].into())).unwrap_err();
    load(&NativeCode::Only([part.digest].into())).unwrap();
    load(&NativeCode::Denied).unwrap_err();
}

#[test]
fn a_damaged_or_foreign_object_is_refused() {
    let code = object("two_same");
    let refused = |bytes: &[u8], hint: &str| {
        let mut part = Part::new("seed_net", &[]);
        part.named = BTreeMap::from([("so_blob".to_owned(), bytes.to_vec())]);
        part.payload = Vec::new();
        let error = part.error();
        assert!(error.contains(hint), "{error}");
    };
    refused(b"MZ", "ELF");
    refused(&code[..code.len() / 2], "");
    for (at, value, hint) in [(4, 1, "64-bit"), (18, 40, "another machine"), (16, 2, "file type")] {
        let mut bytes = code.clone();
        bytes[at] = value;
        refused(&bytes, hint);
    }
    let mut part = Part::new("seed_net", &[]);
    part.named.values_mut().next().unwrap()[1000] ^= 1;
    // Loaded before under its key, or not: the bytes are not those of the key, and never run.
    let loaded_before = part.load_with(&ArenaSet::host(), 0, &NativeCode::Allowed);
    if let Err(error) = loaded_before {
        assert!(error.to_string().contains("SHA-256"), "{error}");
    }
}

#[test]
fn an_object_cut_anywhere_never_gets_as_far_as_being_loaded() {
    let code = object("seed_net");
    let mut part = Part::new("seed_net", &[]);
    part.payload = Vec::new();
    // The last tenth has tables that are not loaded.
    for len in (0..code.len() / 10 * 9).step_by(997) {
        part.named = BTreeMap::from([("so_blob".to_owned(), code[..len].to_vec())]);
        let error = part.error();
        assert!(error.contains("not a loadable shared object"), "{len}: {error}");
    }
}

#[test]
fn missing_functions_are_all_named() {
    let mut part = Part::new("two_same", &[]);
    let code = part.named.values().next().unwrap();
    let text = String::from_utf8_lossy(code);
    assert!(text.contains("aoti_torch__reinterpret_tensor"));
    let mut bytes = code.clone();
    for (from, to) in [
        (&b"aoti_torch__reinterpret_tensor\0"[..], &b"aoti_torch_cuda_rand_like_abcd\0"[..]),
        (b"aoti_torch_get_storage_offset\0", b"aoti_torch_get_storage_OFFSET\0"),
    ] {
        let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    part.named = BTreeMap::from([("so_blob".to_owned(), bytes)]);
    part.payload = Vec::new();
    let error = part.error();
    for name in ["rand_like_abcd (aoti_torch_cuda_rand_like_abcd)", "aoti_torch_get_storage_OFFSET"] {
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn constants_must_match_the_code_and_the_data() {
    let mut part = Part::new("affine", &["w"]);
    assert!(part.error().contains("constant \"b\""), "{}", part.error());
    part = Part::new("affine", &["w", "b"]);
    part.named.remove("cuda_fqn_weight:cpu:b");
    let error = part.error();
    for hint in ["weights for b", "cuda_fqn_weight:cpu:b", "64 bytes", "m.pte", ".ptd"] {
        assert!(error.contains(hint), "{error}");
    }
    part.named.insert("cuda_fqn_weight:cpu:b".into(), vec![0; 60]);
    assert!(part.error().contains("60 bytes, expected 64"), "{}", part.error());
    part = Part::new("two_same", &["c"]);
    assert!(part.error().contains("its code has no such constant"), "{}", part.error());
}

#[test]
fn wrong_calls_are_refused_before_the_code_runs() {
    let part = Part::new("seed_net", &[]);
    let mut delegate = part.load();
    let mut arguments = part.arguments();
    arguments.ids.pop();
    let error = arguments.run(&mut *delegate).unwrap_err();
    assert_eq!(error, DelegateError::ArgumentCount { inputs: 2, outputs: 1, got: 2 });
    let mut arguments = part.arguments();
    arguments.values[1] = Value::Int(3);
    assert!(matches!(arguments.run(&mut *delegate), Err(DelegateError::Argument { index: 1, .. })));
    let mut arguments = part.arguments();
    arguments.tensors[2].unbind();
    assert!(matches!(arguments.run(&mut *delegate), Err(DelegateError::Tensor { index: 2, .. })));
    let mut arguments = part.arguments();
    arguments.run(&mut *delegate).unwrap();
    assert!(arguments.worst_error() <= 0.0);
}

#[test]
fn an_output_of_another_kind_or_size_is_refused_and_the_next_run_works() {
    let part = Part::new("seed_net", &[]);
    let mut delegate = part.load();
    let inputs = || ["in0", "in1"].map(|name| part.arrays[name].clone()).to_vec();
    for (dtype, sizes) in [(DType::Int32, [4, 16]), (DType::Float32, [4, 15])] {
        let mut arguments = Arguments::new(inputs(), vec![Data::stale(dtype, &sizes)]);
        assert!(matches!(arguments.run(&mut *delegate), Err(DelegateError::Tensor { index: 2, .. })));
    }
    let mut arguments = part.arguments();
    arguments.run(&mut *delegate).unwrap();
    assert!(arguments.worst_error() <= 0.0);
}

#[test]
fn steady_runs_take_no_memory() {
    let space = Arc::new(Recording::new(HostSpace::new()));
    let arenas = ArenaSet::builder().space(space.clone()).build();
    let part = Part::new("affine", &["w", "b"]);
    let mut delegate = part.load_with(&arenas, 0, &NativeCode::Allowed).unwrap();
    let mut arguments = part.arguments();
    arguments.run(&mut *delegate).unwrap();
    arguments.run(&mut *delegate).unwrap();
    let before = space.counts();
    for _ in 0..100 {
        arguments.run(&mut *delegate).unwrap();
    }
    assert_eq!(space.counts(), before);
    assert!(arguments.worst_error() <= 1e-6);
    assert_eq!(delegate.memory().constants, [(SpaceId::HOST, 128)]);
}

#[test]
fn runs_on_many_threads_do_not_meet() {
    let part = Part::new("seed_net", &[]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let (mut delegate, mut arguments) = (part.load(), part.arguments());
                for _ in 0..50 {
                    arguments.spoil();
                    arguments.run(&mut *delegate).unwrap();
                    assert!(arguments.worst_error() <= 0.0);
                }
            });
        }
    });
}
