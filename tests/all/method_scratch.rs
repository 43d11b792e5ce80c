//! Methods that lend each other scratch: the same numbers in the bytes of the largest, one run at a time.

use super::support::kernel::Data;
use super::support::method::{loader_of, run, try_run, zeros};
use super::support::npz;
use super::support::program::sample;
use super::support::pte::{Field, Pte, chain, extra, kernel_call, operator, place, slot, tensor, value};
use arenite::exec::{ErrorKind, LoadOptions, Loader, Method, Output, Share, Stage};
use arenite::{AllocError, ArenaSet, Block, HostSpace, MemorySpace, SpaceId};
use core::alloc::Layout;
use std::path::PathBuf;
use std::sync::Arc;

fn lending(arenas: ArenaSet) -> LoadOptions {
    let mut options = LoadOptions::new(arenas);
    options.share = Share::Scratch;
    options
}

fn loader(path: &std::path::Path, options: &LoadOptions) -> Loader {
    loader_of(&std::fs::read(path).unwrap(), options.clone())
}

fn load(name: &str, options: &LoadOptions) -> Method {
    loader(&sample(name), options).load("forward").unwrap()
}

/// Every sample program that runs on the host and takes tensors only.
fn samples() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = ["seed_net.pte", "seed_net_dyn.pte", "mlp.pte", "kv.pte", "chain100.pte"]
        .into_iter()
        .map(sample)
        .collect();
    let cases = std::fs::read_dir(sample("cases")).unwrap();
    let cases = cases.map(|entry| entry.unwrap().path());
    paths.extend(cases.filter(|path| path.extension().is_some_and(|extension| extension == "pte")));
    paths.sort();
    paths
}

/// The stored inputs of a method, or zeros.
fn inputs(path: &std::path::Path, method: &Method) -> Vec<Data> {
    let arrays = path.with_extension("npz");
    let arrays = if arrays.exists() { npz::read(arrays) } else { Default::default() };
    let name = method.name();
    let stored: Vec<Data> =
        (0..).map_while(|index| arrays.get(&format!("{name}.in{index}")).cloned()).collect();
    if stored.len() == method.plan().inputs.len() { stored } else { zeros(method) }
}

/// The bytes of every tensor that the last run left.
fn left(method: &mut Method) -> Vec<Vec<u8>> {
    let mut outputs = method.outputs();
    let mut all = Vec::new();
    for index in 0..outputs.len() {
        let Output::Tensor(tensor) = outputs.get(index) else { continue };
        let mut bytes = vec![0; tensor.size_bytes()];
        if outputs.copy_to(index, &mut bytes).is_ok() {
            all.push(bytes);
        }
    }
    all
}

#[test]
fn methods_that_lend_scratch_run_in_turn_as_if_each_had_its_own() {
    let options = lending(ArenaSet::host());
    let mut rows = Vec::new();
    for path in samples() {
        let (own, lent) = (loader(&path, &LoadOptions::new(ArenaSet::host())), loader(&path, &options));
        let names: Vec<String> = own.program().methods().iter().map(|plan| plan.name.to_string()).collect();
        for name in names {
            let (Ok(own), Ok(lent)) = (own.load(&name), lent.load(&name)) else { continue };
            let inputs = inputs(&path, &own);
            if inputs.len() == own.plan().inputs.len() {
                rows.push((path.clone(), own, lent, inputs));
            }
        }
    }
    assert!(rows.len() >= 20, "{} methods", rows.len());
    for _ in 0..3 {
        let mut after = Vec::new();
        for (path, own, lent, inputs) in &mut rows {
            let inputs: Vec<&Data> = inputs.iter().collect();
            // A refused input leaves both as they were.
            let (expected, got) = (try_run(own, &inputs), try_run(lent, &inputs));
            assert_eq!(expected.is_ok(), got.is_ok(), "{} {}", path.display(), own.name());
            if let (Ok(expected), Ok(got)) = (expected, got) {
                let bytes = |outputs: &[Data]| -> Vec<Vec<u8>> {
                    outputs.iter().map(|output| output.bytes.clone()).collect()
                };
                assert_eq!(bytes(&expected), bytes(&got), "{} {}", path.display(), own.name());
                after.push(left(lent));
            } else {
                after.push(Vec::new());
            }
        }
        for ((path, _, lent, _), expected) in rows.iter_mut().zip(after) {
            if !expected.is_empty() {
                assert_eq!(left(lent), expected, "{}: outputs outlive others' runs", path.display());
            }
        }
    }
}

#[test]
fn scratch_takes_the_bytes_of_the_largest_method_and_goes_with_the_last() {
    let options = lending(ArenaSet::host());
    let lent = || {
        let report = options.arenas.report();
        let owners = report.spaces[0].owners.iter().filter(|owner| owner.owner == "scratch lent to methods");
        owners.map(|owner| owner.bytes).collect::<Vec<_>>()
    };
    let small = load("seed_net.pte", &options);
    let small_bytes = lent()[0];
    let large = load("mlp.pte", &options);
    let large_bytes = lent()[0];
    assert!(large_bytes > small_bytes, "the block grew in place");
    let third = load("chain100.pte", &options);
    assert_eq!(lent().len(), 1);
    drop((large, third));
    assert_eq!(lent(), [large_bytes], "kept for the method that is left");
    drop(small);
    assert_eq!(options.arenas.report().spaces[0].current_bytes, 0);
}

#[test]
fn state_is_never_in_scratch() {
    let options = lending(ArenaSet::host());
    let (mut kv, mut other) = (load("kv.pte", &options), load("chain100.pte", &options));
    let mut own = load("kv.pte", &LoadOptions::new(ArenaSet::host()));
    let row = Data::new(&[1, 4], &[1.0_f32; 4]);
    for at in 0..4_i64 {
        let position = Data::new(&[1], &[at]);
        let (got, expected) = (run(&mut kv, &[&row, &position]), run(&mut own, &[&row, &position]));
        assert_eq!(got[0].bytes, expected[0].bytes, "row {at}");
        let inputs = zeros(&other);
        run(&mut other, &inputs.iter().collect::<Vec<_>>());
    }
    let report = kv.memory_report();
    let state: usize = report.state.iter().map(|(_, _, bytes)| bytes).sum();
    let apart = report.arenas.iter().find(|row| row.used_by.starts_with("state")).unwrap();
    assert!(apart.size_bytes >= state && state > 0, "{report}");
}

#[test]
fn scratch_may_be_used_from_many_threads() {
    let options = lending(ArenaSet::host());
    std::thread::scope(|threads| {
        for name in ["seed_net.pte", "mlp.pte", "chain100.pte", "kv.pte"] {
            let options = &options;
            threads.spawn(move || {
                let mut method = load(name, options);
                let mut own = load(name, &LoadOptions::new(ArenaSet::host()));
                let inputs = inputs(&sample(name), &own);
                let inputs: Vec<&Data> = inputs.iter().collect();
                for _ in 0..200 {
                    let (got, expected) = (run(&mut method, &inputs), run(&mut own, &inputs));
                    assert_eq!(got[0].bytes, expected[0].bytes, "{name}");
                }
            });
        }
    });
}

/// Host memory that cannot grow in place.
#[derive(Debug)]
struct Plain(HostSpace);

// SAFETY: as the host space that is inside.
unsafe impl MemorySpace for Plain {
    fn id(&self) -> SpaceId {
        self.0.id()
    }

    fn host_accessible(&self) -> bool {
        true
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        self.0.allocate(layout)
    }

    unsafe fn deallocate(&self, block: Block) {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.0.deallocate(block) }
    }
}

#[test]
fn scratch_that_cannot_grow_in_place_is_taken_anew_and_the_old_stays_valid() {
    let space = Arc::new(Plain(HostSpace::new()));
    let options = lending(ArenaSet::builder().space(space).build());
    let (mut small, mut large) = (load("seed_net.pte", &options), load("mlp.pte", &options));
    let mut own = load("seed_net.pte", &LoadOptions::new(ArenaSet::host()));
    let given = inputs(&sample("seed_net.pte"), &own);
    let given: Vec<&Data> = given.iter().collect();
    let expected = run(&mut own, &given)[0].bytes.clone();
    assert_eq!(run(&mut small, &given)[0].bytes, expected);
    let others = zeros(&large);
    run(&mut large, &others.iter().collect::<Vec<_>>());
    assert_eq!(run(&mut small, &given)[0].bytes, expected);
}

#[test]
fn a_limit_that_fits_the_largest_fits_all() {
    let own_bytes = |names: &[&str]| {
        let arenas = ArenaSet::host();
        let methods: Vec<Method> =
            names.iter().map(|name| load(name, &LoadOptions::new(arenas.clone()))).collect();
        let bytes = arenas.report().spaces[0].current_bytes;
        drop(methods);
        bytes
    };
    let names = ["mlp.pte"; 8];
    let limit = own_bytes(&names) / 2;
    let limited =
        || ArenaSet::builder().space(Arc::new(HostSpace::new())).limit(SpaceId::HOST, limit).build();
    let private = LoadOptions::new(limited());
    let loaded: Vec<_> = names.iter().map(|name| loader(&sample(name), &private).load("forward")).collect();
    assert!(loaded.iter().any(Result::is_err));
    let options = lending(limited());
    let methods: Vec<Method> = names.iter().map(|name| load(name, &options)).collect();
    assert_eq!(methods.len(), 8);
}

/// Two methods of one program that keep a state `cache` together: each negates its input into it, and gives it.
fn cache_program() -> Vec<u8> {
    let mut pte = Pte::sample();
    let planned = |offset| value(5, tensor(&[2, 2]).with(slot::PLACE, place(1, offset)));
    let cache = tensor(&[2, 2]).with(slot::PLACE, place(1, 16)).with(slot::EXTRA, extra("cache", false));
    let plan = pte.plan();
    plan.set(slot::VALUES, Field::Tables(vec![planned(0), value(5, cache)]));
    plan.set(slot::OUTPUTS, Field::I32s(vec![1]));
    plan.set(slot::CHAINS, Field::Tables(vec![chain(vec![kernel_call(0, &[0, 1, 1])])]));
    plan.set(slot::OPERATORS, Field::Tables(vec![operator("aten::neg", "out")]));
    plan.set(slot::DELEGATES, Field::Tables(vec![]));
    plan.set(slot::BUFFERS, Field::I64s(vec![0, 32]));
    let mut other = plan.clone();
    other.set(slot::NAME, Field::Text("other".into()));
    pte.root.rows(slot::PLANS).push(other);
    pte.bytes()
}

#[test]
fn an_output_that_is_shared_state_is_what_the_run_left() {
    for share in [Share::State, Share::Scratch] {
        let mut options = LoadOptions::new(ArenaSet::host());
        options.share = share;
        let loader = loader_of(&cache_program(), options);
        let (mut forward, mut other) = (loader.load("forward").unwrap(), loader.load("other").unwrap());
        let needs: Vec<Stage> = forward.memory_report().needs.iter().map(|need| need.stage).collect();
        assert!(needs.contains(&Stage::Copies) && needs.contains(&Stage::State), "{needs:?}");
        let value = |value: f32| Data::new(&[2, 2], &[value; 4]);
        let first = run(&mut forward, &[&value(1.0)])[0].bytes.clone();
        let second = run(&mut other, &[&value(2.0)])[0].bytes.clone();
        assert_ne!(first, second);
        assert_eq!(left(&mut forward)[0], first, "{share:?}: another method's run came in between");
        let mut cache = vec![0; 16];
        forward.read_state("cache", &mut cache).unwrap();
        assert_eq!(cache, second, "{share:?}: the state itself is what was written last");
    }
}

#[test]
fn shared_state_may_be_given_from_many_threads() {
    let loader = loader_of(&cache_program(), LoadOptions::new(ArenaSet::host()));
    std::thread::scope(|threads| {
        for (name, sign) in [("forward", 1.0_f32), ("other", -1.0), ("forward", 3.0), ("other", 5.0)] {
            let mut method = loader.load(name).unwrap();
            threads.spawn(move || {
                let given = Data::new(&[2, 2], &[sign; 4]);
                let expected = Data::new(&[2, 2], &[-sign; 4]).bytes;
                for _ in 0..2000 {
                    assert_eq!(run(&mut method, &[&given])[0].bytes, expected, "{name} {sign}");
                }
            });
        }
    });
}

#[test]
fn kernels_share_their_scratch_too() {
    let options = lending(ArenaSet::host());
    let mut methods: Vec<Method> = (0..8).map(|_| load("mlp.pte", &options)).collect();
    let given = inputs(&sample("mlp.pte"), &methods[0]);
    let given: Vec<&Data> = given.iter().collect();
    let bytes_after = |method: &mut Method| {
        run(method, &given);
        options.arenas.report().spaces[0].current_bytes
    };
    let first = bytes_after(&mut methods[0]);
    assert!(methods[0].overhead_bytes().1 > 0, "a kernel of this program takes scratch");
    for method in &mut methods[1..] {
        assert_eq!(bytes_after(method), first);
    }
}

#[test]
fn scratch_that_a_limit_leaves_no_room_for_is_an_error_of_memory() {
    let needs = load("mlp.pte", &LoadOptions::new(ArenaSet::host())).memory_report().needs;
    let limit = needs.iter().map(|need| need.size_bytes).sum();
    let arenas = ArenaSet::builder().space(Arc::new(HostSpace::new())).limit(SpaceId::HOST, limit).build();
    let mut method = load("mlp.pte", &LoadOptions::new(arenas));
    let given = inputs(&sample("mlp.pte"), &method);
    let error = try_run(&mut method, &given.iter().collect::<Vec<_>>()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ArenaMemory, "{error}");
}
