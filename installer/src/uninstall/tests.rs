mod account;
mod cases;

use tenon_installer_core::files::FileOperation;

use super::*;

#[test]
fn a_backup_never_takes_the_place_of_another() {
    let dir = tempfile::tempdir().expect("a folder");
    let place = dir.path().join("made on the way");
    let save = |text| save_anew(&place, "backup", text).expect("it is written");
    let files = [save("first"), save("second"), save("third")];
    let texts = files.each_ref().map(|file| std::fs::read_to_string(file).expect("a file"));
    assert_eq!(texts, ["first", "second", "third"]);
    let in_the_way = files[0].join("below");
    let refused = save_anew(&in_the_way, "backup", "").expect_err("a file is no folder");
    assert_eq!(refused.operation, FileOperation::Write, "{refused:?}");
}
