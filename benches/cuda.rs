//! Times of CUDA programs, on the machine with the GPU.
//!
//! `ARENITE_CUDA_PROGRAMS=FOLDER cargo bench --features cuda --bench cuda` prints one line per program: load,
//! first run, and the median of 2,000 runs with inputs and outputs on the host, eager and as a graph. Answers
//! are checked by `tests/cuda`.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]

#[path = "../tests/all/support/mod.rs"]
mod support;

use arenite::exec::{Input, LoadOptions, Loader, Method, Output, TensorInput};
use arenite::program::{Program, ProgramOptions};
use arenite::space::cuda::{CudaQueue, CudaSpace, Device, PinnedSpace, absence};
use arenite::space::{Piece, Queue};
use arenite::tensor::DType;
use arenite::{Arena, ArenaSet, HostSpace, MemorySpace};
use core::alloc::Layout;
use core::ptr::NonNull;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::kernel::Data;
use support::npz;

const PROGRAMS: [&str; 9] =
    ["seed_net", "seed_net_dyn", "two_out", "seed_net_bf16", "mlp", "norm", "kv", "conv", "deep_norm"];
const RUNS: usize = 2000;

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn arenas() -> ArenaSet {
    ArenaSet::builder()
        .space(Arc::new(HostSpace::new()))
        .space(Arc::new(PinnedSpace::new().unwrap()))
        .space(Arc::new(CudaSpace::new(0).unwrap()))
        .build()
}

struct Inputs {
    data: Vec<Data>,
    strides: Vec<Vec<isize>>,
}

impl Inputs {
    fn read(folder: &Path, name: &str, program: &Program) -> Self {
        let arrays = npz::read(folder.join(format!("{name}.npz")));
        let plan = &program.methods()[0];
        let mut data = Vec::new();
        for (index, &id) in plan.inputs.iter().enumerate() {
            let array = arrays[&format!("{}.in{index}", plan.name)].clone();
            let planned = plan.tensor(id).unwrap().dtype;
            data.push(if planned == DType::BFloat16 {
                let bytes: Vec<u8> = array
                    .get::<f32>()
                    .iter()
                    .flat_map(|&value| half::bf16::from_f32(value).to_le_bytes())
                    .collect();
                Data::of_bytes(planned, &array.sizes, &bytes)
            } else {
                array
            });
        }
        let strides = data
            .iter()
            .map(|data| {
                let mut step = data.dtype.size_bytes().cast_signed();
                let mut strides = vec![0; data.sizes.len()];
                for (slot, &size) in strides.iter_mut().zip(&data.sizes).rev() {
                    *slot = step;
                    step *= size.max(1).cast_signed();
                }
                strides
            })
            .collect();
        Self { data, strides }
    }

    fn list(&self) -> Vec<Input<'_>> {
        self.data
            .iter()
            .zip(&self.strides)
            .map(|(data, strides)| {
                // SAFETY: the strides are those of the row-major bytes, which are borrowed.
                Input::Tensor(unsafe {
                    TensorInput::new(data.bytes.as_ptr(), data.dtype, &data.sizes, strides, data.space)
                })
            })
            .collect()
    }
}

fn run(method: &mut Method, inputs: &[Input<'_>], target: &mut [u8]) {
    let outputs = method.execute(inputs).unwrap();
    if let Output::Tensor(tensor) = outputs.get(0) {
        for (slot, cell) in target.iter_mut().zip(tensor.read_bytes().unwrap()) {
            *slot = cell.get();
        }
    }
}

/// Median and best of many runs, in microseconds.
fn time_runs(method: &mut Method, inputs: &[Input<'_>]) -> (f64, f64) {
    let mut target = vec![0; 1 << 16];
    for _ in 0..50 {
        run(method, inputs, &mut target);
    }
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run(method, inputs, &mut target);
            start.elapsed()
        })
        .collect();
    let middle = median(&mut times);
    (middle, times[0].as_secs_f64() * 1e6)
}

fn time_program(folder: &Path, name: &str) {
    if !folder.join(format!("{name}.pte")).exists() {
        return;
    }
    let (options, data) = (ProgramOptions::new(), folder.join(format!("{name}.ptd")));
    let options = if data.exists() { options.with_data_file(data) } else { options };
    let open = || Arc::new(Program::open(folder.join(format!("{name}.pte")), &options).unwrap());
    let set = arenas();
    let load = || {
        let start = Instant::now();
        let method = Loader::new(open(), LoadOptions::new(set.clone())).load("forward").unwrap();
        (start.elapsed(), method)
    };
    let (first_load, mut method) = load();
    let program = Arc::clone(method.program());
    let inputs = Inputs::read(folder, name, &program);
    let list = inputs.list();
    let start = Instant::now();
    run(&mut method, &list, &mut [0; 4]);
    let first_run = start.elapsed();
    let mut loads: Vec<Duration> = (0..20).map(|_| load().0).collect();
    let (eager, eager_best) = time_runs(&mut method, &list);
    method.capture().unwrap();
    let (graph, graph_best) = time_runs(&mut method, &list);
    println!(
        "{name:14} load {:7.0} us first, {:5.0} later   first run {:7.0} us   eager {eager:6.1} us (best {eager_best:5.1})   graph {graph:6.1} us (best {graph_best:5.1})",
        first_load.as_secs_f64() * 1e6,
        median(&mut loads),
        first_run.as_secs_f64() * 1e6,
    );
}

fn time_copies() {
    let layout = Layout::from_size_align(256 << 20, 256).unwrap();
    let arena = Arena::with_reserve(CudaSpace::new(0).unwrap(), 1 << 30);
    let pinned = PinnedSpace::new().unwrap();
    let (host, device) = (pinned.allocate(layout).unwrap(), arena.allocate(layout).unwrap());
    let mut pageable = vec![1_u8; 256 << 20];
    let mut queue = CudaQueue::new(0).unwrap();
    for (name, address) in [("pinned", host.address()), ("pageable", NonNull::from(&mut pageable[..]).cast())]
    {
        for size_bytes in [256, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 256 << 20] {
            let up = Piece { target: device.address(), source: address, size_bytes };
            let down = Piece { target: address, source: device.address(), size_bytes };
            let mut time = |to_host: bool| {
                let runs = if size_bytes > 1 << 24 { 7 } else { 200 };
                let mut times: Vec<Duration> = (0..runs)
                    .map(|_| {
                        let start = Instant::now();
                        let queued = if to_host {
                            // SAFETY: a host block and a device block of at least this size; waited for.
                            unsafe { queue.download(&[down]) }
                        } else {
                            // SAFETY: as above.
                            unsafe { queue.upload(&[up]) }
                        };
                        queued.unwrap();
                        queue.synchronize().unwrap();
                        start.elapsed()
                    })
                    .collect();
                median(&mut times)
            };
            let (up_us, down_us) = (time(false), time(true));
            let rate = |us: f64| size_bytes as f64 / us / 1e3;
            println!(
                "{name:9} {size_bytes:10} bytes   up {up_us:9.1} us {:5.1} GB/s   down {down_us:9.1} us {:5.1} GB/s",
                rate(up_us),
                rate(down_us)
            );
        }
    }
    drop(queue);
    // SAFETY: it came from this space, just so; every copy was waited for.
    unsafe { pinned.deallocate(host) };
}

fn main() {
    if let Some(reason) = absence(0) {
        println!("nothing measured: {reason}");
        return;
    }
    let device = Device::open(0).unwrap();
    println!("{}, compute capability {:?}", device.name(), device.capability());
    if let Some(folder) = std::env::var_os("ARENITE_CUDA_PROGRAMS") {
        for name in PROGRAMS {
            time_program(Path::new(&folder), name);
        }
    } else {
        println!("no programs measured: ARENITE_CUDA_PROGRAMS names no folder");
    }
    time_copies();
}
