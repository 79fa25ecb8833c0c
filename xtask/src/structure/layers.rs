//! Crates depend on those below them only.

use serde_json::Value;

/// Each crate with the crates of this workspace that it may use.
const LAYERS: &[(&str, &[&str])] = &[
    ("faultless-base", &[]),
    ("faultless-fake", &["faultless-base"]),
    ("faultless-page", &["faultless-base"]),
    ("faultless-mm", &["faultless-base", "faultless-page"]),
    ("faultless-models", &["faultless-base", "faultless-fake", "faultless-page", "faultless-mm"]),
    ("faultless", &["faultless-base", "faultless-page", "faultless-mm"]),
    // The library is what its operations are compared with.
    ("faultless-sim", &["faultless-base", "faultless-fake", "faultless-page", "faultless-mm", "faultless"]),
    ("faultless-capi", &["faultless"]),
    ("faultless-python", &["faultless"]),
    ("faultless-preload", &["faultless-base", "faultless-page", "faultless-mm"]),
    ("faultless-measure", &["faultless-base", "faultless-page", "faultless-mm", "faultless"]),
    ("faultless-record", &["faultless-page", "faultless-measure"]),
    (
        "faultless-bench",
        &["faultless-base", "faultless-page", "faultless-mm", "faultless", "faultless-measure", "faultless-sim"],
    ),
    (
        "faultless-cli",
        &[
            "faultless-base",
            "faultless-page",
            "faultless-mm",
            "faultless",
            "faultless-measure",
            "faultless-record",
        ],
    ),
    ("faultless-testkit", &["faultless-base", "faultless-page", "faultless-mm", "faultless", "faultless-preload"]),
    (
        "faultless-e2e",
        &[
            "faultless-base",
            "faultless-page",
            "faultless-mm",
            "faultless",
            "faultless-preload",
            "faultless-testkit",
        ],
    ),
    ("xtask", &[]),
];

/// What any crate may use in its tests besides.
const IN_TESTS: &[&str] = &["faultless-fake", "faultless-testkit"];

/// Dependencies that go up, and crates that have no layer; `metadata` is what `cargo metadata` prints.
pub fn violations(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let packages: Vec<_> = packages.filter_map(|package| Some((package["name"].as_str()?, package))).collect();
    let is_ours = |name: &str| packages.iter().any(|(ours, _)| *ours == name);
    let mut found = Vec::new();
    for (name, package) in &packages {
        let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| layer == name) else {
            found.push(format!("crate {name} has no layer (xtask/src/structure/layers.rs)"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(used) = dependency["name"].as_str().filter(|used| is_ours(used)) else { continue };
            let test = dependency["kind"] == "dev" && IN_TESTS.contains(&used);
            if !allowed.contains(&used) && used != *name && !test {
                found.push(format!("crate {name} must not use {used}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(names: &[&str], from: &str, to: &str, kind: Value) -> Value {
        let package = |name: &&str| {
            let dependencies =
                if *name == from { serde_json::json!([{ "name": to, "kind": kind }]) } else { Value::Null };
            serde_json::json!({ "name": name, "dependencies": dependencies })
        };
        serde_json::json!({ "packages": names.iter().map(package).collect::<Vec<_>>() })
    }

    #[test]
    fn arrows_that_go_up_are_found() {
        let names = ["faultless-base", "faultless-mm", "faultless-cli", "faultless-testkit"];
        let check = |from, to, kind| violations(&workspace(&names, from, to, kind));
        assert!(check("faultless-mm", "faultless-base", Value::Null).is_empty());
        assert_eq!(
            check("faultless-base", "faultless-mm", Value::Null),
            ["crate faultless-base must not use faultless-mm"]
        );
        assert_eq!(check("faultless-testkit", "faultless-cli", Value::Null).len(), 1);
        assert!(check("faultless-mm", "faultless-testkit", "dev".into()).is_empty());
        assert_eq!(check("faultless-mm", "faultless-testkit", Value::Null).len(), 1);
        assert!(check("faultless-mm", "libc", Value::Null).is_empty());
    }

    #[test]
    fn a_crate_without_a_layer_is_found() {
        assert_eq!(violations(&workspace(&["faultless-new"], "", "", Value::Null)).len(), 1);
    }
}
