//! Sample programs give what eager PyTorch gave, in any order, in one process.

use super::support::kernel::Data;
use super::support::npz;
use arenite::exec::{CAPTURE_AFTER, DeviceTensor, Input, LoadOptions, Loader, Method, Output, TensorInput};
use arenite::program::{Program, ProgramOptions};
use arenite::space::Mark as _;
use arenite::space::cuda::{CudaQueue, CudaSpace, PinnedSpace};
use arenite::tensor::DType;
use arenite::{ArenaSet, HostSpace, SpaceId};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name, methods, and the largest difference to eager that is accepted.
const PROGRAMS: &[(&str, &[&str], f32)] = &[
    ("seed_net", &["forward"], 0.0),
    ("seed_net_dyn", &["forward"], 0.0),
    ("two_out", &["forward"], 0.0),
    ("seed_net_bf16", &["forward"], 0.0),
    ("mlp", &["forward"], 1e-6),
    ("norm", &["forward"], 1e-6),
    ("conv", &["forward"], 1e-6),
    ("deep_norm", &["forward"], 1e-5),
];

fn folder() -> Option<PathBuf> {
    std::env::var_os("ARENITE_CUDA_PROGRAMS").map(PathBuf::from)
}

fn open(name: &str) -> Option<(Arc<Program>, BTreeMap<String, Data>)> {
    let Some(folder) = folder() else {
        if name != "seed_net" {
            return None;
        }
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cuda");
        let packed = std::fs::read(here.join("seed_net.pte.z")).unwrap();
        let mut bytes = Vec::new();
        flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        let program = Program::from_bytes(&bytes, &ProgramOptions::default()).unwrap();
        return Some((Arc::new(program), npz::read(here.join("seed_net.npz"))));
    };
    if !folder.join(format!("{name}.pte")).exists() {
        return None;
    }
    let data = folder.join(format!("{name}.ptd"));
    let options = ProgramOptions::new();
    let options = if data.exists() { options.with_data_file(data) } else { options };
    let program = Program::open(folder.join(format!("{name}.pte")), &options).unwrap();
    Some((Arc::new(program), npz::read(folder.join(format!("{name}.npz")))))
}

/// Gives back at its end what is kept for later queues, so that a leak checker finds nothing.
struct Tidy;

impl Drop for Tidy {
    fn drop(&mut self) {
        arenite::space::cuda::trim_staging();
    }
}

fn arenas() -> ArenaSet {
    ArenaSet::builder()
        .space(Arc::new(HostSpace::new()))
        .space(Arc::new(PinnedSpace::new().unwrap()))
        .space(Arc::new(CudaSpace::new(0).unwrap()))
        .build()
}

fn load(program: &Arc<Program>, method: &str) -> Method {
    Loader::new(Arc::clone(program), LoadOptions::new(arenas())).load(method).unwrap()
}

/// bfloat16 arrays are stored as float32.
fn as_planned(data: &Data, method: &Method, input: usize) -> Data {
    let plan = method.plan();
    let dtype = plan.tensor(plan.inputs[input]).unwrap().dtype;
    if dtype != DType::BFloat16 || data.dtype == DType::BFloat16 {
        return data.clone();
    }
    let bytes: Vec<u8> =
        data.get::<f32>().iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect();
    Data::of_bytes(DType::BFloat16, &data.sizes, &bytes)
}

fn floats(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let pairs = || bytes.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
    match dtype {
        DType::BFloat16 => pairs().map(|pair| half::bf16::from_le_bytes(pair).to_f32()).collect(),
        DType::Float16 => pairs().map(|pair| half::f16::from_le_bytes(pair).to_f32()).collect(),
        DType::Float32 => bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect(),
        other => panic!("outputs of {other}"),
    }
}

/// Runs once; gives the largest difference to eager.
fn error_of(method: &mut Method, name: &str, arrays: &BTreeMap<String, Data>) -> f32 {
    let listed = |kind: &str| {
        (0..).map_while(|index| arrays.get(&format!("{name}.{kind}{index}"))).cloned().collect::<Vec<_>>()
    };
    let owned: Vec<Data> =
        listed("in").iter().enumerate().map(|(index, data)| as_planned(data, method, index)).collect();
    let mut strides: Vec<Vec<isize>> = owned.iter().map(|data| vec![0; data.sizes.len()]).collect();
    for (data, strides) in owned.iter().zip(&mut strides) {
        let mut step = data.dtype.size_bytes().cast_signed();
        for (slot, &size) in strides.iter_mut().zip(&data.sizes).rev() {
            *slot = step;
            step *= size.max(1).cast_signed();
        }
    }
    let inputs: Vec<_> = owned
        .iter()
        .zip(&strides)
        .map(|(data, strides)| {
            // SAFETY: the strides are those of the row-major bytes, which are borrowed.
            Input::Tensor(unsafe {
                TensorInput::new(data.bytes.as_ptr(), data.dtype, &data.sizes, strides, data.space)
            })
        })
        .collect();
    let wanted = listed("out");
    let mut outputs = method.execute(&inputs).unwrap();
    assert_eq!(outputs.len(), wanted.len());
    let mut worst = 0_f32;
    for (index, want) in wanted.iter().enumerate() {
        let Output::Tensor(tensor) = outputs.get(index) else { panic!("output {index} is no tensor") };
        assert_eq!(tensor.sizes(), want.sizes);
        let (dtype, mut bytes) = (tensor.dtype(), vec![0; tensor.size_bytes()]);
        outputs.copy_to(index, &mut bytes).unwrap();
        let want = floats(want.dtype, &want.bytes);
        for (got, want) in floats(dtype, &bytes).iter().zip(&want) {
            worst = worst.max((got - want).abs());
        }
    }
    worst
}

#[test]
#[ignore = "needs a GPU"]
fn every_program_gives_what_eager_gave() {
    let _tidy = Tidy;
    let mut loaded = Vec::new();
    for (name, methods, bound) in PROGRAMS {
        let Some((program, arrays)) = open(name) else { continue };
        for method in *methods {
            loaded.push((*name, *method, load(&program, method), arrays.clone(), *bound));
        }
    }
    for round in 0..5 {
        for (name, method, loaded, arrays, bound) in &mut loaded {
            let error = error_of(loaded, method, arrays);
            println!("{name}.{method} run {round}: error {error:e}");
            assert!(error <= *bound, "{name}.{method} run {round}: {error:e}, at most {bound:e}");
        }
        loaded.reverse();
    }
}

#[test]
#[ignore = "needs a GPU"]
fn captured_programs_give_what_eager_gave() {
    let _tidy = Tidy;
    for (name, methods, bound) in PROGRAMS {
        let Some((program, arrays)) = open(name) else { continue };
        for method in *methods {
            let mut loaded = load(&program, method);
            loaded.capture().unwrap();
            for run in 0..8 {
                let error = error_of(&mut loaded, method, &arrays);
                println!("{name}.{method} run {run}, captured {}: error {error:e}", loaded.is_captured());
                assert!(error <= *bound, "{name}.{method} run {run}: {error:e}, at most {bound:e}");
            }
            assert!(loaded.is_captured(), "{name}.{method}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn programs_are_recorded_by_themselves() {
    let _tidy = Tidy;
    for (name, methods, bound) in PROGRAMS {
        let Some((program, arrays)) = open(name) else { continue };
        for method in *methods {
            let mut options = LoadOptions::new(arenas());
            options.capture_after = Some(4);
            let mut loaded = Loader::new(Arc::clone(&program), options).load(method).unwrap();
            for run in 0..8 {
                let error = error_of(&mut loaded, method, &arrays);
                assert!(error <= *bound, "{name}.{method} run {run}: {error:e}, at most {bound:e}");
            }
            println!("{name}.{method} recorded by itself: {}", loaded.is_captured());
            // Inputs and outputs of `resident_net` stay on the device without planned memory.
            assert_eq!(loaded.is_captured(), *name != "resident_net", "{name}.{method}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn recording_disturbs_no_thread_that_waits_for_the_device() {
    let _tidy = Tidy;
    let Some((program, arrays)) = open("seed_net") else { return };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mark = CudaQueue::new(0).unwrap().record().unwrap();
            let mut count = 0_u32;
            while !over.load(Ordering::Relaxed) {
                mark.synchronize_device().unwrap();
                count += 1;
            }
            count
        });
        for _ in 0..200 {
            let mut method = load(&program, "forward");
            for _ in 0..=CAPTURE_AFTER {
                assert!(error_of(&mut method, "forward", &arrays) <= 0.0);
            }
            assert!(method.is_captured());
        }
        over.store(true, Ordering::Relaxed);
        println!("200 recordings beside {} waits for the device", waits.join().unwrap());
    });
}

#[test]
#[ignore = "needs a GPU"]
fn two_methods_of_one_program_run() {
    let _tidy = Tidy;
    let Some((program, arrays)) = open("two_methods") else { return };
    let loader = Loader::new(Arc::clone(&program), LoadOptions::new(arenas()));
    let names: Vec<String> = program.methods().iter().map(|method| method.name.to_string()).collect();
    let mut methods: Vec<Method> = names.iter().map(|name| loader.load(name).unwrap()).collect();
    for _ in 0..3 {
        for (name, method) in names.iter().zip(&mut methods) {
            let error = error_of(method, name, &arrays);
            println!("two_methods.{name}: error {error:e}");
            assert!(error <= 1e-6, "{name}: {error:e}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn state_stays_from_call_to_call() {
    let _tidy = Tidy;
    let Some((program, arrays)) = open("kv") else { return };
    let mut method = load(&program, "forward");
    let first = error_of(&mut method, "forward", &arrays);
    assert!(first <= 1e-6, "{first:e}");
    // The same row written again gives the same sum.
    let again = error_of(&mut method, "forward", &arrays);
    assert!(again <= 1e-6, "{again:e}");
    method.reset_state().unwrap();
    assert!(error_of(&mut method, "forward", &arrays) <= 1e-6);
}

#[test]
#[ignore = "needs a GPU"]
fn device_memory_goes_in_and_comes_out_without_the_host() {
    let _tidy = Tidy;
    let Some((program, arrays)) = open("resident_net") else { return };
    let arenas = arenas();
    let mut method = Loader::new(program, LoadOptions::new(arenas.clone())).load("forward").unwrap();
    let space = SpaceId::cuda(0);
    let inputs = ["forward.in0", "forward.in1"].map(|name| {
        let data = &arrays[name];
        DeviceTensor::upload(&arenas, space, (data.dtype, &data.sizes), &data.bytes).unwrap()
    });
    let strides = [64, 4];
    for stream in [None, Some(0), Some(2)] {
        for run in 0..5 {
            let list = inputs.each_ref().map(|tensor| {
                // SAFETY: device memory that the tensor keeps, row-major.
                Input::Tensor(unsafe {
                    TensorInput::new(
                        tensor.address().as_ptr(),
                        tensor.dtype(),
                        tensor.sizes(),
                        &strides,
                        space,
                    )
                })
            });
            // SAFETY: the method's stream or a default one; the inputs, waited for, outlive the work.
            let mut outputs = unsafe { method.execute_on(stream, &list) }.unwrap();
            let output = outputs.take_device(0).unwrap().unwrap();
            drop(outputs);
            let mut bytes = vec![0; output.size_bytes()];
            output.download(&mut bytes).unwrap();
            assert_eq!(bytes, arrays["forward.out0"].bytes, "stream {stream:?}, run {run}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn the_seed_program_holds_what_its_plan_says() {
    let _tidy = Tidy;
    let (program, _) = open("seed_net").unwrap();
    let method = load(&program, "forward");
    let plan = method.plan();
    let bytes = |space: SpaceId| -> usize {
        plan.buffers.iter().filter(|buffer| buffer.space == space).map(|buffer| buffer.size_bytes).sum()
    };
    assert_eq!((bytes(SpaceId::HOST), bytes(SpaceId::cuda(0))), (512, 768));
    println!("{}", method.memory_report());
}

#[test]
#[ignore = "needs a GPU"]
fn a_thousand_loads_leave_nothing_behind() {
    let _tidy = Tidy;
    let (program, arrays) = open("seed_net").unwrap();
    let arenas = arenas();
    let cycle = || {
        let loader = Loader::new(Arc::clone(&program), LoadOptions::new(arenas.clone()));
        let mut method = loader.load("forward").unwrap();
        assert!(error_of(&mut method, "forward", &arrays) <= 0.0);
    };
    cycle();
    let device = arenite::space::cuda::Device::open(0).unwrap();
    let before = device.free_bytes().unwrap();
    for _ in 0..1000 {
        cycle();
    }
    arenas.trim();
    let after = device.free_bytes().unwrap();
    assert!(before.saturating_sub(after) < 64 << 20, "{before} free before, {after} after");
}
