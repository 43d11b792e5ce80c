//! Damaged programs that still open: loading and running them is an error or a run, never a crash or a hang.

use super::support::method::{loader_of, try_run, zeros};
use super::support::program::{Random, open, sample};
use super::support::pte::{Field, Pte, slot};
use arenite::delegate::{
    Delegate, DelegateError, DelegateLoad, DelegatePayload, DelegateRegistry, LoadedDelegate, Preparation,
};
use arenite::exec::LoadOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that a plan may ask for here; more is refused, so that no edit takes the machine's memory.
const PLANNED_BYTES_MAX: usize = 1 << 22;

fn bases() -> Vec<Vec<u8>> {
    let mut bases = vec![Pte::sample().bytes()];
    for name in [
        "seed_net.pte",
        "seed_net_dyn.pte",
        "kv.pte",
        "mlp.pte",
        "cases/h02_shared_state.pte",
        "cases/h05_integer_and_bool.pte",
        "cases/h09_unplanned_io.pte",
        "cases/h11_cond_and_map.pte",
        "cases/h11_cond_and_map.map.pte",
    ] {
        bases.push(std::fs::read(sample(name)).unwrap());
    }
    bases
}

/// Opens, loads and runs what can be; an error must have a message.
fn open_load_run(bytes: &[u8]) {
    let Ok(program) = open(bytes) else { return };
    let names: Vec<String> = program.methods().iter().map(|method| method.name.to_string()).collect();
    drop(program);
    let mut options = LoadOptions::default();
    options.max_planned_bytes = PLANNED_BYTES_MAX;
    let loader = loader_of(bytes, options);
    for name in names {
        match loader.load(&name) {
            Ok(mut method) => {
                let inputs = zeros(&method);
                let inputs: Vec<_> = inputs.iter().collect();
                for _ in 0..2 {
                    if let Err(error) = try_run(&mut method, &inputs) {
                        assert!(!error.to_string().is_empty());
                    }
                }
                assert!(!method.memory_report().to_string().is_empty());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

#[test]
fn whole_programs_run() {
    bases().iter().for_each(|base| open_load_run(base));
}

#[test]
fn single_bit_flips_are_survived() {
    let bases = bases();
    let mut random = Random(11);
    for _ in 0..10_000 {
        let mut file = bases[random.below(bases.len())].clone();
        let (at, bit) = (random.below(file.len()), random.below(8));
        file[at] ^= 1 << bit;
        open_load_run(&file);
    }
}

#[test]
fn edits_of_indices_and_offsets_are_survived() {
    let bases = bases();
    let mut random = Random(12);
    for _ in 0..10_000 {
        let mut file = bases[random.below(bases.len())].clone();
        for _ in 0..=random.below(2) {
            let at = random.below(file.len() / 4) * 4;
            let old = u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
            let near = u32::try_from(random.below(16)).unwrap();
            let new = match random.below(4) {
                0 => near,
                1 => old.wrapping_add(near),
                2 => old.wrapping_sub(near),
                _ => old.rotate_left(near),
            };
            file[at..at + 4].copy_from_slice(&new.to_le_bytes());
        }
        open_load_run(&file);
    }
}

/// Counts what it has prepared ahead, and is never loaded.
#[derive(Clone, Default)]
struct Ahead(Arc<AtomicU32>);

impl Delegate for Ahead {
    fn id(&self) -> &'static str {
        "TestBackend"
    }

    fn prepare<'a>(&self, _: &DelegatePayload<'a>) -> Option<Preparation<'a>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Some(Box::new(|| Box::new(())))
    }

    fn load(&self, _: &mut DelegateLoad<'_>) -> Result<Box<dyn LoadedDelegate>, DelegateError> {
        Err(DelegateError::Failed { reason: "enough was seen".into() })
    }
}

#[test]
fn a_program_of_many_delegates_has_few_prepared_at_a_time() {
    let mut pte = Pte::sample();
    let delegate = pte.plan().row(slot::DELEGATES, 0).clone();
    pte.plan().set(slot::DELEGATES, Field::Tables(vec![delegate; 1000]));
    let ahead = Ahead::default();
    let mut registry = DelegateRegistry::new();
    registry.add(ahead.clone());
    let mut options = LoadOptions::default();
    options.delegates = Arc::new(registry);
    let error = loader_of(&pte.bytes(), options).load("forward").unwrap_err().to_string();
    assert!(error.contains("enough was seen"), "{error}");
    assert!((1..=16).contains(&ahead.0.load(Ordering::Relaxed)), "{ahead:?}", ahead = ahead.0);
}
