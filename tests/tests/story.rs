//! The story that `cargo sandbox` tells: from `tenon install` to a proven-empty `tenon uninstall`.

#[tokio::test(flavor = "multi_thread")]
async fn the_story_comes_to_its_end_and_leaves_nothing() {
    let report = tenon_tests::story::prove()
        .await
        .unwrap_or_else(|error| panic!("{}", tenon_tests::wait::chain(error.as_ref())));
    for chapter in &report.chapters {
        println!("{} ({:.1} s)", chapter.title, chapter.seconds);
        for note in &chapter.notes {
            println!("  {note}");
        }
    }
    let last = report.chapters.last().expect("at least the first chapter");
    let failure = last.failure.as_deref().unwrap_or_default();
    assert!(report.ok, "chapter {}: {failure}; the logs are in {:?}", last.title, report.logs);
}
