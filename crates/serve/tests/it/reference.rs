//! The reference of all keys is the one in the documentation.

use std::path::Path;

#[test]
fn the_documentation_has_the_reference_of_every_key() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CONFIG.md");
    let reference = ringroad_serve::config::reference();
    if std::env::var_os("RINGROAD_WRITE_REFERENCE").is_some() {
        std::fs::write(&file, &reference).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == reference,
        "docs/CONFIG.md is not the reference of this program: run this test with RINGROAD_WRITE_REFERENCE=1"
    );
}
