//! The answers of the real API server, one file per file of scripts.

use crate::Transcript;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded")
}

/// What the real server answered when it was last recorded, by script.
pub fn read() -> io::Result<BTreeMap<String, Transcript>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory())? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "json") {
            let read: Vec<Transcript> = serde_json::from_slice(&fs::read(&path)?)?;
            all.extend(read.into_iter().map(|t| (t.script.clone(), t)));
        }
    }
    Ok(all)
}

/// Records anew what the real server answers.
pub fn write(transcripts: &[Transcript]) -> io::Result<()> {
    let mut files: BTreeMap<&str, Vec<&Transcript>> = BTreeMap::new();
    for transcript in transcripts {
        let file = transcript.script.split(':').next().unwrap_or_default();
        files.entry(file).or_default().push(transcript);
    }
    for (file, transcripts) in files {
        let text = serde_json::to_string_pretty(&transcripts)?;
        fs::write(directory().join(format!("{file}.json")), text + "\n")?;
    }
    Ok(())
}
