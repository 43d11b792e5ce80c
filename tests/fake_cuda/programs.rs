//! Programs with a CUDA delegate load and run: the real compiled host code, on the stand-in.

use super::stand_in::StandIn;
use super::support::kernel::Data;
use super::support::npz;
use arenite::exec::{
    CAPTURE_AFTER, Input, LoadOptions, Loader, MAX_MAPPED_BYTES, Method, Output, TensorInput,
};
use arenite::program::{Program, ProgramOptions};
use arenite::space::cuda::{CudaSpace, PinnedSpace};
use arenite::{ArenaSet, HostSpace};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cuda").join(name)
}

pub fn seed_net() -> (Arc<Program>, BTreeMap<String, Data>) {
    packed("seed_net")
}

/// A program of the repository, and what eager PyTorch gave.
pub fn packed(name: &str) -> (Arc<Program>, BTreeMap<String, Data>) {
    let mut bytes = Vec::new();
    let packed = std::fs::read(path(&format!("{name}.pte.z"))).unwrap();
    flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    let program = Program::from_bytes(&bytes, &ProgramOptions::default()).unwrap();
    (Arc::new(program), npz::read(path("seed_net.npz")))
}

pub fn arenas() -> Result<ArenaSet, String> {
    Ok(ArenaSet::builder()
        .space(Arc::new(HostSpace::new()))
        .space(Arc::new(PinnedSpace::new()?))
        .space(Arc::new(CudaSpace::new(0)?))
        .build())
}

pub fn load(program: &Arc<Program>) -> Result<Method, String> {
    load_mapping(program, MAX_MAPPED_BYTES)
}

/// Loads, with tensors of at most so many bytes in pinned memory.
fn load_mapping(program: &Arc<Program>, max_mapped_bytes: usize) -> Result<Method, String> {
    load_recording(program, max_mapped_bytes, None)
}

/// As well, recorded by itself after so many runs.
fn load_recording(
    program: &Arc<Program>,
    max_mapped_bytes: usize,
    capture_after: Option<u32>,
) -> Result<Method, String> {
    let mut options = LoadOptions::new(arenas()?);
    options.max_mapped_bytes = max_mapped_bytes;
    options.capture_after = capture_after;
    Loader::new(Arc::clone(program), options).load("forward").map_err(|error| error.to_string())
}

pub fn row_major(data: &Data) -> Vec<isize> {
    let mut step = data.dtype.size_bytes().cast_signed();
    let mut strides = vec![0; data.sizes.len()];
    for (slot, &size) in strides.iter_mut().zip(&data.sizes).rev() {
        *slot = step;
        step *= size.cast_signed();
    }
    strides
}

fn run(method: &mut Method, inputs: &[&Data]) -> Result<Vec<u8>, String> {
    let strides: Vec<_> = inputs.iter().map(|data| row_major(data)).collect();
    let inputs: Vec<_> = inputs
        .iter()
        .zip(&strides)
        .map(|(data, strides)| {
            // SAFETY: the strides are those of the row-major bytes, which are borrowed.
            Input::Tensor(unsafe {
                TensorInput::new(data.bytes.as_ptr(), data.dtype, &data.sizes, strides, data.space)
            })
        })
        .collect();
    let mut outputs = method.execute(&inputs).map_err(|error| error.to_string())?;
    let Output::Tensor(tensor) = outputs.get(0) else { return Err("no tensor".into()) };
    let mut bytes = vec![0; tensor.size_bytes()];
    outputs.copy_to(0, &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

#[test]
fn the_seed_program_runs_and_later_runs_take_no_memory() {
    let stand_in = StandIn::take();
    let before = stand_in.live();
    let (program, arrays) = seed_net();
    let inputs = [&arrays["forward.in0"], &arrays["forward.in1"]];
    for max_mapped_bytes in [MAX_MAPPED_BYTES, 0] {
        let mut method = load_mapping(&program, max_mapped_bytes).unwrap();
        let launches = stand_in.launches();
        for index in 0..20 {
            assert_eq!(run(&mut method, &inputs).unwrap(), arrays["forward.out0"].bytes, "run {index}");
            if index == 2 {
                let taken = stand_in.allocations();
                run(&mut method, &inputs).unwrap();
                assert_eq!(stand_in.allocations(), taken);
            }
        }
        assert_eq!(stand_in.launches(), launches + 21);
    }
    assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0));
}

#[test]
fn small_tensors_cross_without_a_copy_in_every_method() {
    let stand_in = StandIn::take();
    let (program, arrays) = seed_net();
    let inputs = [&arrays["forward.in0"], &arrays["forward.in1"]];
    let loader = Loader::new(program, LoadOptions::new(arenas().unwrap()));
    let mut methods: Vec<Method> = (0..3).map(|_| loader.load("forward").unwrap()).collect();
    // The first run of a method also finds where its outputs go.
    methods.iter_mut().for_each(|method| drop(run(method, &inputs).unwrap()));
    let copies = stand_in.copies();
    for method in &mut methods {
        assert_eq!(run(method, &inputs).unwrap(), arrays["forward.out0"].bytes);
    }
    assert_eq!(stand_in.copies(), copies);
}

#[test]
fn a_later_load_takes_the_memory_that_an_earlier_one_gave_back() {
    let stand_in = StandIn::take();
    let (program, arrays) = seed_net();
    let inputs = [&arrays["forward.in0"], &arrays["forward.in1"]];
    let loader = Loader::new(program, LoadOptions::new(arenas().unwrap()));
    let mut taken = Vec::new();
    for _ in 0..3 {
        let mut method = loader.load("forward").unwrap();
        assert_eq!(run(&mut method, &inputs).unwrap(), arrays["forward.out0"].bytes);
        taken.push((stand_in.allocations(), stand_in.live_bytes()));
    }
    assert!(taken.iter().all(|first| *first == taken[0]), "{taken:?}");
}

#[test]
fn no_failing_call_of_load_and_run_leaks_or_gives_wrong_bytes() {
    let stand_in = StandIn::take();
    let (program, arrays) = seed_net();
    let inputs = [&arrays["forward.in0"], &arrays["forward.in1"]];
    for max_mapped_bytes in [MAX_MAPPED_BYTES, 0] {
        sweep(&stand_in, &|| run(&mut load_mapping(&program, max_mapped_bytes)?, &inputs), &arrays);
    }
}

fn sweep(stand_in: &StandIn, flow: &dyn Fn() -> Result<Vec<u8>, String>, arrays: &BTreeMap<String, Data>) {
    flow().unwrap();
    let before = stand_in.live();
    for call in 1.. {
        stand_in.fail_after(call);
        let outcome = flow();
        let failed = stand_in.has_failed();
        stand_in.fail_after(0);
        assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0), "call {call}");
        match outcome {
            Ok(bytes) => {
                // A failed free or a failed trim may go unnoticed, wrong bytes may not.
                assert_eq!(bytes, arrays["forward.out0"].bytes, "call {call}");
            }
            Err(error) => assert!(failed && !error.is_empty(), "call {call}"),
        }
        if !failed {
            break;
        }
    }
}

#[test]
fn a_captured_method_gives_the_same_for_new_inputs() {
    let stand_in = StandIn::take();
    let before = stand_in.live();
    let (program, arrays) = seed_net();
    let inputs = [&arrays["forward.in0"], &arrays["forward.in1"]];
    for max_mapped_bytes in [MAX_MAPPED_BYTES, 0] {
        let mut eager = load(&program).unwrap();
        let mut captured = load_mapping(&program, max_mapped_bytes).unwrap();
        captured.capture().unwrap();
        for round in 0..8_u8 {
            let scale = |data: &Data| {
                let values: Vec<f32> =
                    data.get::<f32>().iter().map(|value| value * f32::from(round)).collect();
                Data::new(&data.sizes, &values)
            };
            let (x, y) = (scale(inputs[0]), scale(inputs[1]));
            let wanted = run(&mut eager, &[&x, &y]).unwrap();
            assert_eq!(run(&mut captured, &[&x, &y]).unwrap(), wanted, "round {round}");
            assert_eq!(captured.is_captured(), round >= 2, "round {round}");
        }
        captured.discard_graph();
        assert_eq!(run(&mut captured, &inputs).unwrap(), arrays["forward.out0"].bytes);
    }
    assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0));
}

#[test]
fn runs_are_recorded_by_themselves_and_then_take_no_memory() {
    let stand_in = StandIn::take();
    let before = stand_in.live();
    let (program, arrays) = seed_net();
    let inputs = [&arrays["forward.in0"], &arrays["forward.in1"]];
    {
        let mut method = load_recording(&program, MAX_MAPPED_BYTES, Some(4)).unwrap();
        for index in 0..4 {
            assert_eq!(run(&mut method, &inputs).unwrap(), arrays["forward.out0"].bytes);
            assert!(!method.is_captured(), "run {index}");
        }
        run(&mut method, &inputs).unwrap();
        let taken = stand_in.allocations();
        for _ in 0..3 {
            assert!(method.is_captured());
            assert_eq!(run(&mut method, &inputs).unwrap(), arrays["forward.out0"].bytes);
        }
        assert_eq!(stand_in.allocations(), taken);
        method.discard_graph();
        (0..=4).for_each(|_| drop(run(&mut method, &inputs).unwrap()));
        assert!(!method.is_captured(), "discarded for good");
        method = load(&program).unwrap();
        (0..=20).for_each(|_| drop(run(&mut method, &inputs).unwrap()));
        assert!(!method.is_captured(), "not wanted");
        let loader = Loader::new(Arc::clone(&program), LoadOptions::new(arenas().unwrap()));
        method = loader.load("forward").unwrap();
        (0..=CAPTURE_AFTER).for_each(|_| drop(run(&mut method, &inputs).unwrap()));
        assert!(method.is_captured(), "the default");
    }
    assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0));
}

#[test]
fn a_recording_that_nobody_asked_for_fails_in_silence() {
    let stand_in = StandIn::take();
    let (program, arrays) = seed_net();
    let inputs = [&arrays["forward.in0"], &arrays["forward.in1"]];
    let before = stand_in.live();
    let mut recorded = 0;
    for call in 1..60 {
        let mut method = load_recording(&program, 0, Some(2)).unwrap();
        (0..2).for_each(|_| drop(run(&mut method, &inputs).unwrap()));
        stand_in.fail_after(call);
        let outcome = run(&mut method, &inputs);
        let failed = stand_in.has_failed();
        stand_in.fail_after(0);
        if let Ok(bytes) = outcome {
            assert_eq!(bytes, arrays["forward.out0"].bytes, "call {call}");
            recorded += u32::from(failed && !method.is_captured());
        }
        for _ in 0..2 {
            assert_eq!(run(&mut method, &inputs).unwrap(), arrays["forward.out0"].bytes, "call {call}");
        }
        drop(method);
        assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0), "call {call}");
        if !failed {
            assert!(recorded > 2, "{recorded} failures of recording were stepped over");
            return;
        }
    }
    panic!("a run takes fewer calls");
}

#[test]
fn a_program_for_an_absent_device_names_it() {
    let _stand_in = StandIn::take();
    let (program, _) = seed_net();
    let host_only = LoadOptions::new(ArenaSet::host());
    let error = Loader::new(program, host_only).load("forward").unwrap_err().to_string();
    assert!(error.contains("cuda:0"), "{error}");
}

/// With `ARENITE_CUDA_PROGRAMS`: all samples together, in one process, with their real host code.
#[test]
fn every_sample_program_loads_and_runs_beside_the_others() {
    let Some(folder) = std::env::var_os("ARENITE_CUDA_PROGRAMS").map(PathBuf::from) else { return };
    let stand_in = StandIn::take();
    let before = stand_in.live();
    {
        let mut loaded = Vec::new();
        for entry in std::fs::read_dir(&folder).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_none_or(|ending| ending != "pte") {
                continue;
            }
            let options = ProgramOptions::new().with_data_file(file.with_extension("ptd"));
            let program = Arc::new(Program::open(&file, &options).unwrap());
            let loader = Loader::new(Arc::clone(&program), LoadOptions::new(arenas().unwrap()));
            for plan in program.methods() {
                println!("{} {}", file.display(), plan.name);
                loaded.push(loader.load(&plan.name).unwrap());
            }
        }
        for round in 0..3 {
            for method in &mut loaded {
                let launches = stand_in.launches();
                let plan = method.plan();
                let inputs: Vec<Data> = plan
                    .inputs
                    .iter()
                    .map(|&id| {
                        let spec = plan.tensor(id).unwrap();
                        Data::of_bytes(spec.dtype, plan.sizes(spec), &vec![0; spec.size_bytes])
                    })
                    .collect();
                let name = format!("{} {}", method.program().label(), method.name());
                run(method, &inputs.iter().collect::<Vec<_>>())
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(stand_in.launches() > launches, "{name}, round {round}");
            }
            loaded.reverse();
        }
    }
    assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0));
}
