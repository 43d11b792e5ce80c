//! Damaged files: an error that can be told or a program that is whole; never a panic or a hang.

use super::support::program::{Random, open_and_visit, sample};
use super::support::pte::Pte;

fn bases() -> Vec<(&'static str, Vec<u8>)> {
    let mut bases = vec![("the built sample", Pte::sample().bytes())];
    for name in
        ["seed_net.pte", "kv.pte", "mlp.pte", "cases/h02_shared_state.pte", "cases/h11_cond_and_map.pte"]
    {
        bases.push((name, std::fs::read(sample(name)).unwrap()));
    }
    bases
}

#[test]
fn a_program_with_segments_is_refused_at_every_shorter_length() {
    for name in ["mlp.pte", "cases/h02_shared_state.pte"] {
        let file = std::fs::read(sample(name)).unwrap();
        assert!(open_and_visit(&file), "{name}");
        for len in 0..file.len() {
            assert!(!open_and_visit(&file[..len]), "{name} opens at {len} of {} bytes", file.len());
        }
    }
}

#[test]
fn a_program_without_segments_may_lose_padding_only() {
    let file = std::fs::read(sample("kv.pte")).unwrap();
    for len in 0..file.len() {
        // What a table never names may be lost.
        assert!(!open_and_visit(&file[..len]) || len + 64 > file.len(), "{len} of {}", file.len());
    }
}

#[test]
fn bytes_after_the_end_are_ignored() {
    let mut file = std::fs::read(sample("mlp.pte")).unwrap();
    file.resize(file.len() + 1000, 0);
    assert!(open_and_visit(&file));
}

#[test]
fn single_bit_flips_are_survived() {
    let bases = bases();
    let mut random = Random(1);
    for _ in 0..10_000 {
        let mut file = bases[random.below(bases.len())].1.clone();
        let (at, bit) = (random.below(file.len()), random.below(8));
        file[at] ^= 1 << bit;
        open_and_visit(&file);
    }
}

#[test]
fn edits_of_indices_and_offsets_are_survived() {
    const TELLING: [u32; 14] =
        [0, 1, 2, 3, 4, 8, 16, 255, 0x7F, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0xFFFF_FFFC, 0x1_0000];
    let bases = bases();
    let mut random = Random(2);
    for _ in 0..10_000 {
        let mut file = bases[random.below(bases.len())].1.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(file.len() / 4) * 4;
            let old = u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
            let new = match random.below(4) {
                0 => TELLING[random.below(TELLING.len())],
                1 => old.wrapping_add(u32::try_from(random.below(64)).unwrap()),
                2 => old.wrapping_sub(u32::try_from(random.below(64)).unwrap()),
                _ => u32::try_from(random.below(2 * file.len())).unwrap(),
            };
            file[at..at + 4].copy_from_slice(&new.to_le_bytes());
        }
        open_and_visit(&file);
    }
}

#[test]
fn random_bytes_behind_the_magic_are_survived() {
    let mut random = Random(3);
    for _ in 0..2_000 {
        let len = 12 + random.below(400);
        let mut file: Vec<u8> = (0..len).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
        file[..8].copy_from_slice(b"\x0c\0\0\0ET12");
        open_and_visit(&file);
    }
}
