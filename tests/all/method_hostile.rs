//! Damaged programs that still open: loading and running them is an error or a run, never a crash or a hang.

use super::support::method::{loader_of, try_run, zeros};
use super::support::program::{Random, open, sample};
use super::support::pte::Pte;
use arenite::exec::LoadOptions;

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
