//! Recorded methods beside other runs of the same method, and plans in which tensors share bytes, on the stand-in.

use super::programs::{arenas, row_major};
use super::stand_in::StandIn;
use super::support::kernel::Data;
use super::support::pte::{
    Field, Pte, Table, chain, kernel_call, operator, place, slot, step, table, tensor, value,
};
use arenite::SpaceId;
use arenite::delegate::{
    Delegate, DelegateCall, DelegateError, DelegateLoad, DelegateRegistry, LoadedDelegate,
};
use arenite::exec::{DeviceTensor, Input, LoadOptions, Loader, Method, Output, TensorInput};
use arenite::program::{Program, ProgramOptions};
use arenite::space::cuda::CudaQueue;
use arenite::space::{Piece, Queue as _};
use arenite::tensor::DType;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// Copies its last input to its output, on the device. `refusals` calls that are to come fail, after the copy.
#[derive(Clone, Default)]
struct Copying {
    refusals: Arc<AtomicU32>,
    /// Whether it waits for the queue before, as code does that looks at a number.
    waits: bool,
}

impl Delegate for Copying {
    fn id(&self) -> &'static str {
        "TestBackend"
    }

    fn load(&self, _: &mut DelegateLoad<'_>) -> Result<Box<dyn LoadedDelegate>, DelegateError> {
        Ok(Box::new(self.clone()))
    }
}

impl LoadedDelegate for Copying {
    fn execute(&mut self, call: &mut DelegateCall<'_>) -> Result<(), DelegateError> {
        let last = call.len() - 1;
        let from = call.tensor(last - 1)?;
        let (sizes, source, size_bytes) = (from.sizes().to_vec(), from.address().unwrap(), from.size_bytes());
        let to = call.tensor_mut(last)?;
        to.resize(&sizes).unwrap();
        let target = to.address().unwrap();
        if self.waits {
            call.queue().unwrap().synchronize()?;
        }
        // SAFETY: bound device memory of the same size, the method's.
        unsafe { call.queue().unwrap().copy(Piece { target, source, size_bytes }) }?;
        let refuse = |left: u32| left.checked_sub(1);
        match self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, refuse) {
            Ok(_) => Err(DelegateError::Failed { reason: "this call was to fail".into() }),
            Err(_) => Ok(()),
        }
    }

    fn refuses_capture(&self) -> Option<String> {
        None
    }
}

const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// A tensor of up to 4 by 4 numbers.
fn planned(memory_id: u32, offset: u32) -> Table {
    planned_of(4, memory_id, offset)
}

/// A tensor of up to so many rows of 4 numbers.
fn planned_of(rows: i32, memory_id: u32, offset: u32) -> Table {
    let tensor =
        tensor(&[rows, 4]).with(slot::PLACE, place(memory_id, offset)).with(slot::DYNAMISM, Field::I8(1));
    value(5, tensor)
}

fn upload(from: i32, to: i32) -> Table {
    kernel_call(0, &[from, to, to])
}

fn download(from: i32, to: i32) -> Table {
    kernel_call(1, &[from, to, to])
}

fn delegate(args: &[i32]) -> Table {
    step(2, table().with(0, Field::I32(0)).with(1, Field::I32s(args.to_vec())))
}

/// `forward` of value 0.
fn program(values: Vec<Table>, outputs: &[i32], steps: Vec<Table>) -> Arc<Program> {
    let mut pte = Pte::sample();
    let plan = pte.plan();
    plan.set(slot::VALUES, Field::Tables(values));
    plan.set(slot::OUTPUTS, Field::I32s(outputs.to_vec()));
    plan.set(slot::CHAINS, Field::Tables(vec![chain(steps)]));
    let copies = [operator("et_copy::_h2d_copy", "out"), operator("et_copy::_d2h_copy", "out")];
    plan.set(slot::OPERATORS, Field::Tables(copies.to_vec()));
    plan.set(slot::BUFFERS, Field::I64s(vec![0, 4 << 20, 4 << 20]));
    let cuda = table().with(0, Field::I32(2)).with(1, Field::I8(1)).with(2, Field::I8(0));
    plan.set(slot::DEVICES, Field::Tables(vec![cuda]));
    Arc::new(Program::from_bytes(&pte.bytes(), &ProgramOptions::default()).unwrap())
}

/// An input, what it is uploaded to, what the delegate writes, and the output that is downloaded to.
fn ends(rows: u32) -> Vec<Table> {
    let (most, second) = (i32::try_from(rows).unwrap(), rows * 16);
    [(HOST, 0), (DEVICE, 0), (DEVICE, second), (HOST, second)]
        .map(|(memory_id, offset)| planned_of(most, memory_id, offset))
        .to_vec()
}

/// An upload, the delegate, a download.
fn copying() -> Arc<Program> {
    copying_of(4)
}

/// The same for up to so many rows.
fn copying_of(rows: u32) -> Arc<Program> {
    program(ends(rows), &[3], vec![upload(0, 1), delegate(&[1, 2]), download(2, 3)])
}

fn load(program: Arc<Program>, backend: Copying, max_mapped_bytes: usize) -> Method {
    let mut registry = DelegateRegistry::new();
    registry.add(backend);
    let mut options = LoadOptions::new(arenas().unwrap());
    options.delegates = Arc::new(registry);
    options.capture_after = Some(1);
    options.max_mapped_bytes = max_mapped_bytes;
    Loader::new(program, options).load("forward").unwrap()
}

fn numbers(rows: usize, first: f32) -> Data {
    let values: Vec<f32> =
        (0..rows * 4).zip((0_u16..1000).cycle()).map(|(_, at)| first + f32::from(at)).collect();
    Data::new(&[rows, 4], &values)
}

fn outputs(mut outputs: arenite::exec::Outputs<'_>, count: usize) -> Vec<Vec<u8>> {
    let each = |index| {
        let Output::Tensor(tensor) = outputs.get(index) else { panic!("no tensor") };
        let mut bytes = vec![0; tensor.size_bytes()];
        outputs.copy_to(index, &mut bytes).unwrap();
        bytes
    };
    (0..count).map(each).collect()
}

fn run(method: &mut Method, x: &Data) -> Result<Vec<Vec<u8>>, String> {
    let count = method.plan().outputs.len();
    let strides = row_major(x);
    // SAFETY: the strides are those of the row-major bytes, which are borrowed.
    let input = unsafe { TensorInput::new(x.bytes.as_ptr(), x.dtype, &x.sizes, &strides, x.space) };
    let inputs = [Input::Tensor(input)];
    Ok(outputs(method.execute(&inputs).map_err(|error| error.to_string())?, count))
}

fn run_on_device(method: &mut Method, x: &Data) -> Vec<Vec<u8>> {
    let there = DeviceTensor::upload(
        &method.options().arenas.clone(),
        SpaceId::cuda(0),
        (DType::Float32, &x.sizes),
        &x.bytes,
    )
    .unwrap();
    let (count, strides) = (method.plan().outputs.len(), row_major(x));
    // SAFETY: device memory that the tensor keeps, row-major.
    let input =
        unsafe { TensorInput::new(there.address().as_ptr(), x.dtype, &x.sizes, &strides, there.space()) };
    let inputs = [Input::Tensor(input)];
    // SAFETY: no stream is named; the input outlives the run.
    outputs(unsafe { method.execute_on(None, &inputs) }.unwrap(), count)
}

#[test]
fn a_recorded_method_takes_other_sizes_between_runs_from_wherever_they_come() {
    let _stand_in = StandIn::take();
    for max_mapped_bytes in [1 << 20, 0] {
        let mut method = load(copying(), Copying::default(), max_mapped_bytes);
        let (large, small) = (numbers(4, 1.0), numbers(2, 7.0));
        for round in 0..4 {
            assert_eq!(run(&mut method, &large).unwrap()[0], large.bytes, "round {round}");
        }
        assert!(method.is_captured());
        assert_eq!(run(&mut method, &small).unwrap()[0], small.bytes);
        assert_eq!(run(&mut method, &large).unwrap()[0], large.bytes, "after other sizes on the host");
        assert_eq!(run_on_device(&mut method, &small)[0], small.bytes);
        assert_eq!(run(&mut method, &large).unwrap()[0], large.bytes, "after other sizes on a device");
    }
}

#[test]
fn a_callers_stream_comes_behind_work_of_a_delegate_that_waited_for_the_queue() {
    let _stand_in = StandIn::take();
    let there = table().with(3, Field::I8(1)).with(4, Field::I8(0));
    let end = || value(5, tensor(&[4, 4]).with(slot::EXTRA, Field::Table(there.clone())));
    let program = program(vec![end(), end()], &[1], vec![delegate(&[0, 1])]);
    let mut method = load(program, Copying { waits: true, ..Copying::default() }, 0);
    let mut stream = CudaQueue::new(0).unwrap();
    let (x, strides) = (numbers(4, 1.0), [16, 4]);
    let arenas = method.options().arenas.clone();
    let kind = (DType::Float32, &x.sizes[..]);
    let input = DeviceTensor::upload(&arenas, SpaceId::cuda(0), kind, &x.bytes).unwrap();
    for round in 0..3 {
        let zero = DeviceTensor::upload(&arenas, SpaceId::cuda(0), kind, &[0; 64]).unwrap();
        for (from, bytes) in [(&zero, &[0; 64][..]), (&input, &x.bytes)] {
            // SAFETY: device memory that the tensor keeps, row-major.
            let given = unsafe {
                TensorInput::new(from.address().as_ptr(), x.dtype, &x.sizes, &strides, from.space())
            };
            let inputs = [Input::Tensor(given)];
            let raw = stream.raw_stream();
            // SAFETY: a live stream; the input outlives the work, which is waited for below.
            let mut outputs = unsafe { method.execute_on(Some(raw), &inputs) }.unwrap();
            let output = outputs.take_device(0).unwrap().unwrap();
            // SAFETY: the stream is live.
            unsafe { output.order(raw) }.unwrap();
            let mut got = [1_u8; 64];
            let piece =
                Piece { target: NonNull::from(&mut got).cast(), source: output.address(), size_bytes: 64 };
            // SAFETY: the output's memory and the array, both there until the queue was waited for.
            unsafe { stream.download(&[piece]) }.unwrap();
            stream.synchronize().unwrap();
            assert_eq!(got, bytes, "round {round}");
        }
    }
}

#[test]
fn a_run_that_fails_while_it_is_recorded_leaves_nothing_behind() {
    let stand_in = StandIn::take();
    let before = stand_in.live();
    let backend = Copying::default();
    let mut method = load(copying(), backend.clone(), 0);
    let x = numbers(4, 1.0);
    run(&mut method, &x).unwrap();
    let live = stand_in.live();
    backend.refusals.store(1, Ordering::Relaxed);
    assert_eq!(run(&mut method, &x).unwrap()[0], x.bytes, "done as always");
    assert!(!method.is_captured());
    assert_eq!(stand_in.live(), live);
    assert_eq!(run(&mut method, &numbers(3, 5.0)).unwrap()[0], numbers(3, 5.0).bytes);
    // Where it was asked for, the failure shows, and later runs go on.
    method.capture().unwrap();
    (0..2).for_each(|_| drop(run(&mut method, &x).unwrap()));
    backend.refusals.store(1, Ordering::Relaxed);
    assert!(run(&mut method, &x).unwrap_err().contains("this call was to fail"));
    assert_eq!(run(&mut method, &x).unwrap()[0], x.bytes);
    assert_eq!(stand_in.live(), live);
    drop(method);
    assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0));
}

#[test]
fn a_graph_that_nobody_asked_for_and_cannot_be_launched_is_dropped_in_silence() {
    let stand_in = StandIn::take();
    let before = stand_in.live();
    let x = numbers(4, 1.0);
    let mut dropped = 0;
    for call in 1..20 {
        let mut method = load(copying(), Copying::default(), 0);
        (0..3).for_each(|_| drop(run(&mut method, &x).unwrap()));
        assert!(method.is_captured());
        stand_in.fail_after(call);
        let outcome = run(&mut method, &x);
        let failed = stand_in.has_failed();
        stand_in.fail_after(0);
        if let Ok(got) = outcome {
            assert_eq!(got[0], x.bytes, "call {call}");
            dropped += u32::from(failed && !method.is_captured());
        }
        assert_eq!(run(&mut method, &x).unwrap()[0], x.bytes, "after call {call}");
        drop(method);
        assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0), "call {call}");
        if !failed {
            assert!(dropped > 0);
            return;
        }
    }
    panic!("a launch takes fewer calls");
}

#[test]
fn a_method_is_recorded_by_itself_where_its_copies_are_not_long() {
    let _stand_in = StandIn::take();
    // Just below a mebibyte, and above.
    for (rows, recorded) in [(65_000_u32, true), (80_000, false)] {
        let x = numbers(rows as usize, 0.0);
        let mut method = load(copying_of(rows), Copying::default(), 1024);
        for index in 0..4 {
            assert!(run(&mut method, &x).unwrap()[0] == x.bytes, "run {index} of {rows} rows");
        }
        assert_eq!(method.is_captured(), recorded, "{rows} rows");
    }
}

#[test]
fn a_tensor_that_another_one_views_stays_where_the_plan_has_it() {
    let _stand_in = StandIn::take();
    let x = numbers(4, 1.0);
    let with = |more: &[Table]| [ends(4), more.to_vec()].concat();
    let views = [
        // Value 4 is a view of the input, sent beside it.
        (
            with(&[planned(HOST, 0), planned(DEVICE, 128)]),
            vec![3],
            vec![upload(0, 1), upload(4, 5), delegate(&[1, 5, 2]), download(2, 3)],
        ),
        // A view of the input is sent, and given out as well.
        (with(&[planned(HOST, 0)]), vec![3, 4], vec![upload(4, 1), delegate(&[1, 2]), download(2, 3)]),
        // A view of an output is another one.
        (with(&[planned(HOST, 64)]), vec![3, 4], vec![upload(0, 1), delegate(&[1, 2]), download(2, 3)]),
        // What is fetched is a view of what the delegate wrote.
        (with(&[planned(DEVICE, 64)]), vec![3], vec![upload(0, 1), delegate(&[1, 2]), download(4, 3)]),
        // What is fetched is a view of what was sent.
        (with(&[planned(DEVICE, 0)]), vec![3], vec![upload(0, 1), delegate(&[1, 2]), download(4, 3)]),
    ];
    for (at, (values, outputs, steps)) in views.into_iter().enumerate() {
        for max_mapped_bytes in [0, 1, 1 << 20] {
            let program = program(values.clone(), &outputs, steps.clone());
            let mut method = load(program, Copying::default(), max_mapped_bytes);
            for round in 0..4 {
                for got in run(&mut method, &x).unwrap() {
                    assert_eq!(got, x.bytes, "case {at}, {max_mapped_bytes} bytes, round {round}");
                }
            }
        }
    }
}
