#![forbid(unsafe_code)]
//! The house rules that a compiler does not check: layers, `unsafe`, file heads, file sizes, paths.
//!
//! The layer table and the list of files with unsafe code are read from `design.md`, so that a new arrow or a
//! new unsafe file is a visible decision. Deliberately absent: formatting and lints, which have their tools.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most lines before the tests of a file.
const LINES_MAX: usize = 600;
/// The most bytes that all tracked files may have together.
const REPOSITORY_BYTES_MAX: u64 = 10 << 20;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `folder` with this ending, by path from the top; build output and caches are skipped.
fn files(folder: &str, ending: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk(&root().join(folder), &mut |path| {
        let name = relative(path);
        if name.ends_with(ending) {
            found.push((name, fs::read_to_string(path).unwrap_or_default()));
        }
    });
    found.sort();
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

fn walk(folder: &Path, each: &mut impl FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        // Hidden folders are tools' own, but for those that the repository has.
        let skipped = name == "target"
            || (name.starts_with('.') && name != ".ci" && name != ".cargo")
            || name == "dist"
            || name == "__pycache__"
            || name.ends_with("_cache")
            || name.contains("venv");
        if path.is_dir() {
            if !skipped {
                walk(&path, each);
            }
        } else {
            each(&path);
        }
    }
}

fn design() -> String {
    fs::read_to_string(root().join("design.md")).expect("design.md is at the top")
}

/// Every word between backticks in a cell of a table.
fn ticked(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The rows `module → modules it may import` of the layer table.
fn layers() -> BTreeMap<String, BTreeSet<String>> {
    let design = design();
    let mut rows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let table = design.lines().skip_while(|line| !line.starts_with("| module | imports"));
    for line in table.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some(module) = ticked(cells[1]).into_iter().next() else { continue };
        let imports = if cells[2].contains("all above") {
            rows.keys().cloned().collect()
        } else {
            ticked(cells[2]).into_iter().collect()
        };
        rows.insert(module, imports);
    }
    assert!(rows.len() > 5, "design.md has the table `| module | imports | what |`");
    rows
}

/// The code of a file: without comments, strings stay.
fn code(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// The files of `src` as `(path, top module, depth of its module below the crate, code)`.
fn sources() -> Vec<(String, String, usize, String)> {
    let own = |(path, text): (String, String)| {
        let inside = path.strip_prefix("src/")?.strip_suffix(".rs")?.to_owned();
        let parts: Vec<&str> = inside.split('/').filter(|part| *part != "mod").collect();
        let top = (*parts.first()?).to_owned();
        (top != "lib").then(|| (path.clone(), top, parts.len(), code(&text)))
    };
    files("src", ".rs").into_iter().filter_map(own).collect()
}

/// The names that a path expression `head::…` goes on to: one, or those inside braces.
fn heads(code: &str, head: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(head) {
        let rest = &code[at + head.len()..];
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
            continue;
        }
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0_usize;
            let mut name = String::new();
            let mut open = true;
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        names.push(core::mem::take(&mut name));
                        open = true;
                    }
                    c if depth == 0 && open && (c.is_alphanumeric() || c == '_') => name.push(c),
                    ':' if depth == 0 => open = false,
                    _ => {}
                }
            }
            names.push(name);
        } else {
            names.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn modules_import_only_what_the_layer_table_allows() {
    let layers = layers();
    let mut wrong = Vec::new();
    for (path, top, depth, code) in sources() {
        let Some(allowed) = layers.get(&top) else {
            wrong.push(format!("{path}: `{top}` has no row in design.md"));
            continue;
        };
        let mut used = heads(&code, "crate::");
        used.extend(heads(&code, &"super::".repeat(depth)));
        for name in used {
            if name != top && !allowed.contains(&name) && layers.contains_key(&name) {
                wrong.push(format!("{path}: `{top}` may not import `{name}`"));
            } else if name.starts_with(char::is_uppercase) {
                wrong.push(format!("{path}: crate::{name} hides the module it is from"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The files that design.md lists as holding unsafe code, in the table `| file with unsafe code | … |`.
fn unsafe_files() -> BTreeSet<String> {
    let design = design();
    let table = design.lines().skip_while(|line| !line.starts_with("| file with unsafe code |"));
    let rows = table.skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| ticked(row.split('|').nth(1)?).into_iter().next()).collect()
}

#[test]
fn unsafe_code_is_only_in_the_files_that_design_lists() {
    let listed = unsafe_files();
    let mut wrong = Vec::new();
    for (path, text) in files("src", ".rs").into_iter().chain(files("xtask/src", ".rs")) {
        let forbids = text.starts_with("#![forbid(unsafe_code)]");
        let declares_modules = code(&text)
            .lines()
            .any(|line| line.ends_with(';') && (line.starts_with("mod ") || line.starts_with("pub mod ")));
        match (listed.contains(&path), forbids) {
            (false, false) if !declares_modules => {
                wrong.push(format!(
                    "{path}: opens without #![forbid(unsafe_code)], and design.md does not list it"
                ));
            }
            (false, false) if has_unsafe(&text) => {
                wrong.push(format!("{path}: has unsafe code, and design.md does not list it"));
            }
            (true, true) => wrong.push(format!("{path}: forbids unsafe code, yet design.md lists it")),
            _ => {}
        }
    }
    // The binding's macros expand to unsafe code, so its files cannot forbid it; the word must not be there.
    for (path, text) in files("py/src", ".rs").into_iter().chain(files("capi/src", ".rs")) {
        if has_unsafe(&text) && !listed.contains(&path) {
            wrong.push(format!("{path}: has unsafe code, and design.md does not list it"));
        }
    }
    for path in listed {
        if !root().join(&path).exists() {
            wrong.push(format!("{path}: listed in design.md, and not there"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether there is an unsafe block, function, implementation or extern block.
fn has_unsafe(text: &str) -> bool {
    let code = code(text);
    let words: Vec<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    words.contains(&"unsafe")
}

#[test]
fn each_file_opens_by_saying_what_it_is() {
    let mut wrong = Vec::new();
    for folder in ["src", "capi", "py/src", "xtask/src", "tests", "benches", "examples"] {
        for (path, text) in files(folder, ".rs") {
            let is_attribute_or_end = |line: &&str| {
                line.starts_with("#![")
                    || line.starts_with(')')
                    || line.starts_with("    ")
                    || line.is_empty()
            };
            let first = text.lines().find(|line| !is_attribute_or_end(line)).unwrap_or("");
            // A compile-fail case is what its name says; its lines are quoted in the expected output.
            if !first.starts_with("//!") && !path.contains("compile_fail/") {
                wrong.push(format!("{path}: opens with `{first}`, not with //!"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_stay_readable_in_one_sitting() {
    let mut wrong = Vec::new();
    for folder in ["src", "capi/src", "py/src", "xtask/src"] {
        for (path, text) in files(folder, ".rs") {
            let before_tests = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
            if before_tests > LINES_MAX {
                wrong.push(format!("{path}: {before_tests} lines before its tests, at most {LINES_MAX}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_points_outside_the_repository() {
    // Written in two pieces, so that this file does not name them itself.
    let machine: Vec<String> =
        [("/wo", "rk/"), ("/ro", "ot/"), ("/opt", "/peer"), ("/tmp", "/peer"), ("/home", "/")]
            .iter()
            .map(|(a, b)| format!("{a}{b}"))
            .collect();
    let shared = format!("../{}", "shared");
    let mut wrong = Vec::new();
    walk(&root(), &mut |path| {
        let name = relative(path);
        let ending = name.rsplit('.').next().unwrap_or("");
        if !matches!(ending, "rs" | "py" | "pyi" | "md" | "toml" | "sh" | "yml" | "json") && name != ".ci/run"
        {
            return;
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        for place in &machine {
            if text.contains(place.as_str()) {
                wrong.push(format!("{name}: names {place}"));
            }
        }
        // Tests may read more where it is there, if they ask first.
        let guarded = name.contains("tests/") && (text.contains("exists()") || text.contains("is_dir()"));
        if text.contains(&shared) && !guarded {
            wrong.push(format!("{name}: names {shared} without asking whether it is there"));
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_repository_stays_small() {
    let mut total_bytes = 0;
    let mut largest = (0, String::new());
    walk(&root(), &mut |path| {
        let size_bytes = path.metadata().map_or(0, |meta| meta.len());
        total_bytes += size_bytes;
        largest = largest.clone().max((size_bytes, relative(path)));
    });
    assert!(
        total_bytes < REPOSITORY_BYTES_MAX,
        "{total_bytes} bytes, at most {REPOSITORY_BYTES_MAX}; the largest is {largest:?}"
    );
}

#[test]
fn path_heads_are_found_in_groups_and_in_paths() {
    let code = "use crate::{space::SpaceId, tensor};\nlet x = crate::arena::Arena::new(); mycrate::plan();";
    assert_eq!(heads(code, "crate::"), ["space", "tensor", "arena"]);
}
