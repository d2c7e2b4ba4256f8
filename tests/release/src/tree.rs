//! A tree of files in memory, and the one tar file that it makes: entries in the order of their
//! paths, owned by root, all of one time.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::{Compression, GzBuilder};

/// A file of a tree.
#[derive(Clone, Debug, Eq, PartialEq)]
struct File {
    mode: u32,
    content: Vec<u8>,
}

/// Files by their paths, which are relative and have no `.` or `..`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tree {
    files: BTreeMap<String, File>,
    directories: BTreeMap<String, u32>,
}

impl Tree {
    /// Adds a file; a leading `/` is dropped, parents are made.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) {
        let path = path.trim_start_matches('/');
        self.parents_of(path);
        self.files.insert(path.to_owned(), File { mode, content: content.into() });
    }

    /// Adds a directory.
    pub(crate) fn directory(&mut self, path: &str, mode: u32) {
        let path = path.trim_matches('/');
        self.parents_of(path);
        self.directories.insert(path.to_owned(), mode);
    }

    fn parents_of(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            self.directories.entry(path[..at].to_owned()).or_insert(0o755);
        }
    }

    /// The tar file, all of whose entries have the time `epoch`. `with_directories`: layers have
    /// entries for directories, archives need none.
    ///
    /// # Panics
    /// Never: writing to memory does not fail, and no path is longer than tar allows.
    pub(crate) fn tar(&self, epoch: u64, with_directories: bool) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut entries: Vec<(String, Option<&File>, u32)> =
            self.files.iter().map(|(path, file)| (path.clone(), Some(file), file.mode)).collect();
        if with_directories {
            let directories = self.directories.iter();
            entries.extend(directories.map(|(path, mode)| (format!("{path}/"), None, *mode)));
        }
        entries.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        for (path, file, mode) in entries {
            let mut header = tar::Header::new_ustar();
            header.set_mode(mode);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(epoch);
            let content = file.map_or(&[][..], |file| &file.content);
            header.set_size(content.len() as u64);
            header.set_entry_type(match file {
                Some(_) => tar::EntryType::Regular,
                None => tar::EntryType::Directory,
            });
            builder.append_data(&mut header, path, content).expect("memory takes it");
        }
        builder.into_inner().expect("memory takes it")
    }
}

/// Compressed without a name or time.
///
/// # Panics
/// Never: writing to memory does not fail.
pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    // 255: no operating system. The default would name this one.
    let mut encoder =
        GzBuilder::new().operating_system(255).write(Vec::new(), Compression::default());
    encoder.write_all(content).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_in_which_files_come_changes_nothing() {
        let (mut one, mut two) = (Tree::default(), Tree::default());
        one.file("/etc/a", 0o644, "a");
        one.file("/b", 0o755, "b");
        two.file("b", 0o755, "b");
        two.file("etc/a", 0o644, "a");
        assert_eq!(one.tar(7, true), two.tar(7, true));
        assert_ne!(one.tar(7, true), one.tar(8, true));
        assert_eq!(gzip(b"x"), gzip(b"x"));
    }

    #[test]
    fn a_layer_has_directories_before_what_is_in_them_and_root_owns_all() {
        let mut tree = Tree::default();
        tree.file("usr/bin/x", 0o755, "x");
        tree.directory("tmp", 0o1777);
        let tar = tree.tar(5, true);
        let mut archive = tar::Archive::new(tar.as_slice());
        let entries = archive.entries().expect("a tar file").map(|entry| {
            let entry = entry.expect("an entry");
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (0, 5));
            (entry.path().unwrap().display().to_string(), header.mode().unwrap())
        });
        let entries: Vec<_> = entries.collect();
        let expected =
            [("tmp/", 0o1777), ("usr/", 0o755), ("usr/bin/", 0o755), ("usr/bin/x", 0o755)];
        assert_eq!(entries, expected.map(|(path, mode)| (path.to_owned(), mode)));
        assert!(!tree.tar(5, false).windows(4).any(|it| it == b"tmp/"), "archives have files only");
    }
}
