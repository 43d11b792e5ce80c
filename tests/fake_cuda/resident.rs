//! Tensors that stay on the device, and work in the order of a caller's stream, on the stand-in.

use super::programs::{arenas, load, packed, row_major, seed_net};
use super::stand_in::StandIn;
use super::support::kernel::Data;
use arenite::exec::{DeviceTensor, Input, Method, TensorInput};
use arenite::space::cuda::CudaQueue;
use arenite::space::{Mark, Queue};
use arenite::tensor::DType;
use arenite::{ArenaSet, SpaceId};
use std::sync::Arc;

const SIZES: [usize; 2] = [4, 16];
const STRIDES: [isize; 2] = [64, 4];

fn on_device(arenas: &ArenaSet, data: &Data) -> DeviceTensor {
    DeviceTensor::upload(arenas, SpaceId::cuda(0), (DType::Float32, &data.sizes), &data.bytes).unwrap()
}

fn bytes_of(tensor: &DeviceTensor) -> Vec<u8> {
    let mut bytes = vec![0; tensor.size_bytes()];
    tensor.download(&mut bytes).unwrap();
    bytes
}

/// Runs on device tensors; gives the output's own memory, and what is to be waited for.
fn run(
    method: &mut Method,
    stream: Option<usize>,
    inputs: [&DeviceTensor; 2],
) -> Result<(DeviceTensor, Option<Arc<dyn Mark>>), String> {
    let raw = stream.or_else(|| method.stream(SpaceId::cuda(0))).unwrap();
    let inputs = inputs.map(|tensor| {
        // SAFETY: a live stream of the stand-in.
        unsafe { tensor.order(raw) }.unwrap();
        // SAFETY: device memory that the tensor keeps, row-major.
        Input::Tensor(unsafe {
            TensorInput::new(tensor.address().as_ptr(), tensor.dtype(), &SIZES, &STRIDES, tensor.space())
        })
    });
    // SAFETY: a live stream; the inputs outlive the work, which every test waits for.
    let mut outputs = unsafe { method.execute_on(stream, &inputs) }.map_err(|error| error.to_string())?;
    let mark = outputs.mark();
    let output = outputs.take_device(0).map_err(|error| error.to_string())?;
    Ok((output.ok_or("the output is not on a device")?, mark))
}

/// `relu(x * y + x) * 2`, as the programs compute it.
fn wanted(x: &Data, y: &Data) -> Vec<u8> {
    let both = x.get::<f32>().into_iter().zip(y.get::<f32>());
    both.flat_map(|(x, y)| ((x * y + x).max(0.0) * 2.0).to_le_bytes()).collect()
}

#[test]
fn tensors_go_to_a_device_and_come_back() {
    let stand_in = StandIn::take();
    let before = stand_in.live();
    {
        let arenas = arenas().unwrap();
        let (_, arrays) = seed_net();
        let tensor = on_device(&arenas, &arrays["forward.in0"]);
        assert_eq!(bytes_of(&tensor), arrays["forward.in0"].bytes);
        assert_eq!((tensor.space(), tensor.sizes()), (SpaceId::cuda(0), &SIZES[..]));
        let short = DeviceTensor::upload(&arenas, SpaceId::cuda(0), (DType::Float32, &SIZES), &[0; 255]);
        assert!(short.unwrap_err().contains("255 bytes"));
        let host = DeviceTensor::upload(&arenas, SpaceId::HOST, (DType::Float32, &[1]), &[0; 4]);
        assert!(host.unwrap_err().contains("no device"));
    }
    assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0));
}

#[test]
fn outputs_stay_on_the_device_and_runs_take_no_memory() {
    let stand_in = StandIn::take();
    let before = stand_in.live();
    let (program, arrays) = packed("resident_net");
    let kept = {
        let arenas = arenas().unwrap();
        let [x, y] = ["forward.in0", "forward.in1"].map(|name| on_device(&arenas, &arrays[name]));
        let mut method = load(&program).unwrap();
        let first = run(&mut method, None, [&x, &y]).unwrap().0;
        for index in 0..20 {
            let taken = stand_in.allocations();
            let (output, mark) = run(&mut method, None, [&x, &y]).unwrap();
            assert!(mark.is_none(), "work on the method's own stream is waited for");
            assert_eq!(bytes_of(&output), arrays["forward.out0"].bytes, "run {index}");
            assert!(index < 2 || stand_in.allocations() == taken, "run {index} took memory");
        }
        // What was given away is not written by later runs, and outlives the method.
        let other = on_device(&arenas, &Data::new(&SIZES, &[3.0_f32; 64]));
        run(&mut method, None, [&other, &other]).unwrap();
        assert_eq!(bytes_of(&first), arrays["forward.out0"].bytes);
        first
    };
    assert_eq!(bytes_of(&kept), arrays["forward.out0"].bytes);
    drop(kept);
    assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0));
}

#[test]
fn work_on_a_callers_stream_is_left_there_and_stays_in_order() {
    let stand_in = StandIn::take();
    let before = stand_in.live();
    let (program, arrays) = packed("resident_net");
    {
        let arenas = arenas().unwrap();
        let [x, y] = ["forward.in0", "forward.in1"].map(|name| on_device(&arenas, &arrays[name]));
        let mut method = load(&program).unwrap();
        let mut streams = [CudaQueue::new(0).unwrap(), CudaQueue::new(0).unwrap()];
        for round in 0..12 {
            // The same stream twice, then the other, then the method's own in between.
            let stream = (round % 5 != 4).then(|| streams[round / 2 % 2].raw_stream());
            let (output, mark) = run(&mut method, stream, [&x, &y]).unwrap();
            assert_eq!(mark.is_some(), stream.is_some(), "round {round}");
            let (again, _) = run(&mut method, stream, [&output, &y]).unwrap();
            let half = Data::of_bytes(DType::Float32, &SIZES, &arrays["forward.out0"].bytes);
            assert_eq!(bytes_of(&again), wanted(&half, &arrays["forward.in1"]), "round {round}");
            assert_eq!(bytes_of(&output), half.bytes, "round {round}");
        }
        streams.iter_mut().for_each(|stream| stream.synchronize().unwrap());
    }
    assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0));
}

#[test]
fn a_method_whose_ends_have_no_planned_memory_is_not_captured() {
    let _stand_in = StandIn::take();
    let mut method = load(&packed("resident_net").0).unwrap();
    let refused = method.capture().unwrap_err().to_string();
    assert!(refused.contains("no planned memory") && !method.is_captured(), "{refused}");
}

#[test]
fn a_program_with_host_inputs_takes_device_tensors_too() {
    let _stand_in = StandIn::take();
    let (program, arrays) = seed_net();
    let arenas = arenas().unwrap();
    let x = on_device(&arenas, &arrays["forward.in0"]);
    let y = &arrays["forward.in1"];
    let strides = row_major(y);
    let mut method = load(&program).unwrap();
    let mut stream = CudaQueue::new(0).unwrap();
    for round in 0..4 {
        // SAFETY: device memory that the tensor keeps, and borrowed host bytes, both row-major.
        let inputs = unsafe {
            [
                TensorInput::new(x.address().as_ptr(), DType::Float32, &SIZES, &STRIDES, x.space()),
                TensorInput::new(y.bytes.as_ptr(), y.dtype, &y.sizes, &strides, y.space),
            ]
        }
        .map(Input::Tensor);
        let named = (round % 2 == 1).then(|| stream.raw_stream());
        // SAFETY: a live stream; the run is waited for, since the host takes part.
        let mut outputs = unsafe { method.execute_on(named, &inputs) }.unwrap();
        assert!(outputs.mark().is_none() && outputs.take_device(0).unwrap().is_none());
        let mut bytes = vec![0; 256];
        outputs.copy_to(0, &mut bytes).unwrap();
        assert_eq!(bytes, arrays["forward.out0"].bytes, "round {round}");
    }
    stream.synchronize().unwrap();
}

#[test]
fn no_failing_call_of_a_resident_run_leaks_or_gives_wrong_bytes() {
    let stand_in = StandIn::take();
    let (program, arrays) = packed("resident_net");
    let flow = || -> Result<Vec<u8>, String> {
        let arenas = arenas()?;
        let upload = |name: &str| {
            let data = &arrays[name];
            DeviceTensor::upload(&arenas, SpaceId::cuda(0), (DType::Float32, &data.sizes), &data.bytes)
        };
        let (x, y) = (upload("forward.in0")?, upload("forward.in1")?);
        let mut method = load(&program)?;
        let inputs = [&x, &y].map(|tensor| {
            // SAFETY: device memory that the tensor keeps, row-major.
            Input::Tensor(unsafe {
                TensorInput::new(tensor.address().as_ptr(), DType::Float32, &SIZES, &STRIDES, tensor.space())
            })
        });
        // SAFETY: the default stream; the output is waited for below.
        let mut outputs =
            unsafe { method.execute_on(Some(0), &inputs) }.map_err(|error| error.to_string())?;
        let output = outputs.take_device(0).map_err(|error| error.to_string())?.ok_or("not on a device")?;
        let mut bytes = vec![0; 256];
        output.download(&mut bytes)?;
        Ok(bytes)
    };
    flow().unwrap();
    let before = stand_in.live();
    for call in 1.. {
        stand_in.fail_after(call);
        let outcome = flow();
        let failed = stand_in.has_failed();
        stand_in.fail_after(0);
        assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0), "call {call}");
        match outcome {
            Ok(bytes) => assert_eq!(bytes, arrays["forward.out0"].bytes, "call {call}"),
            Err(error) => assert!(failed && !error.is_empty(), "call {call}"),
        }
        if !failed {
            break;
        }
    }
}
