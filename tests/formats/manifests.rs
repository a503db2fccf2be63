//! Manifests, by the rules that web/manifest.ts has, too.

use kitfox::Error;
use kitfox::format::manifest::{Manifest, PIECE_BYTES};
use serde_json::Value;

#[test]
fn manifests_are_taken_and_refused_as_the_package_does() {
    let cases: Value = serde_json::from_str(include_str!("../fixtures/manifests.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let parsed = Manifest::parse("m", &case["manifest"].to_string());
        match (case["wrong"].as_str(), parsed) {
            (None, Ok(manifest)) => assert_eq!(Manifest::parse("m", &manifest.to_json().to_string()).unwrap(), manifest),
            (Some(wrong), Err(error @ Error::Format { .. })) => {
                assert!(error.to_string().starts_with(&format!("m: {wrong}: ")), "{}: {error}", case["name"]);
            }
            (_, parsed) => panic!("{}: {parsed:?}", case["name"]),
        }
    }
    // What JavaScript passes over.
    let twice = cases[0]["manifest"].to_string().replacen('{', "{\"version\":1,", 1);
    assert!(Manifest::parse("m", &twice).unwrap_err().to_string().contains("listed twice"));
}

#[test]
fn the_first_piece_that_differs_is_named_with_both_hashes() {
    let of = |bytes: u64, hashes: &[u8]| Manifest {
        file: "f".into(),
        bytes,
        sha256: hashes.iter().map(|byte| [*byte; 32]).collect(),
        whole: [hashes.iter().sum(); 32],
    };
    let stated = of(3 * PIECE_BYTES, &[1, 2, 3]);
    stated.check("f", &stated).unwrap();
    let error = stated.check("f", &of(3 * PIECE_BYTES, &[1, 9, 8])).unwrap_err().to_string();
    assert!(error.starts_with("f: piece 1 (from byte 4194304): expected SHA-256 0202") && error.contains("got 0909"), "{error}");
    let error = stated.check("f", &of(2 * PIECE_BYTES, &[1, 2])).unwrap_err().to_string();
    assert!(error.contains("length: expected 12582912 bytes, as its manifest says, got 8388608"), "{error}");
    let whole = Manifest { whole: [0; 32], ..stated.clone() };
    assert!(stated.check("f", &whole).unwrap_err().to_string().starts_with("f: whole: "));
}
