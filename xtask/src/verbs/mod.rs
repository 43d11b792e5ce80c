#![forbid(unsafe_code)]
//! The verbs, and how words find them.

mod demo;
mod gpu_bundle;
mod peers_alloc;
mod peers_plan;
mod peers_python;
mod sanitize;
mod test;

/// What a verb gives back: nothing, or one sentence on what went wrong.
pub(crate) type Outcome = Result<(), String>;

/// One command.
pub(crate) struct Verb {
    /// One word or two.
    pub(crate) name: &'static str,
    /// One line for the list of verbs.
    pub(crate) about: &'static str,
    /// Does it, given the words after the name.
    pub(crate) run: fn(&[String]) -> Outcome,
}

/// Every verb; a new one is a file here and a row there.
pub(crate) const TABLE: &[Verb] = &[
    Verb { name: "demo", about: "builds the wheel and runs seed_net from Python", run: demo::run },
    Verb { name: "gpu-bundle", about: "gathers what a machine with a GPU runs", run: gpu_bundle::run },
    Verb {
        name: "sanitize",
        about: "runs threads under AddressSanitizer and ThreadSanitizer, with a nightly",
        run: sanitize::run,
    },
    Verb { name: "test", about: "runs every Rust and Python test", run: test::run },
    Verb {
        name: "peers alloc",
        about: "prints tables of arenas and pools beside their peers",
        run: peers_alloc::run,
    },
    Verb {
        name: "peers plan",
        about: "prints the planner's targets and figures, beside MiniMalloc's if it can be had",
        run: peers_plan::run,
    },
    Verb {
        name: "peers python",
        about: "prints time ratios to ExecuTorch's wheel, one a line",
        run: peers_python::run,
    },
];

/// The verb that `words` begin with, and the words after it.
pub(crate) fn find(words: &[String]) -> Option<(&'static Verb, &[String])> {
    TABLE.iter().find_map(|verb| {
        let name: Vec<&str> = verb.name.split(' ').collect();
        let (head, rest) = words.split_at_checked(name.len())?;
        head.iter().map(String::as_str).eq(name).then_some((verb, rest))
    })
}
