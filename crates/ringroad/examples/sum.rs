//! `sum FOLDER`: how many files are beneath a folder, how many bytes they hold, and the sum of those bytes;
//! up to 32 files are read at once.

use ringroad::{Result, Runtime, choose, fs, sync, task};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// How many bytes a file holds, and their sum.
async fn sum_of(path: &Path) -> Result<(u64, u64)> {
    let file = fs::File::open(path).await?;
    let (mut bytes, mut sum) = (0, 0);
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    loop {
        let (read, back) = file.read_at(chunk, bytes).await;
        chunk = back;
        if read? == 0 {
            return Ok((bytes, sum));
        }
        bytes += chunk.len() as u64;
        sum += chunk.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        chunk.clear();
    }
}

async fn sum_beneath(folder: PathBuf) -> Result<(u64, u64, u64)> {
    let at_once = Arc::new(sync::Semaphore::new(32));
    let (tell, mut told) = sync::unbounded();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        let mut listing = fs::read_dir(&folder).await?;
        while let Some(entry) = listing.next().await {
            let path = entry?.path();
            // Not what a link leads to: it may lead back here.
            let there = fs::symlink_metadata(&path).await?;
            if there.is_dir() {
                folders.push(path);
            } else if there.is_file() {
                let permit = at_once.acquire_arc().await;
                let tell = tell.clone();
                task::spawn(async move {
                    // Fails only if the receiver has already stopped at an earlier error.
                    let _ = tell.send(sum_of(&path).await);
                    drop(permit);
                })
                .detach();
            }
        }
    }
    drop(tell);
    let (mut files, mut bytes, mut sum) = (0, 0, 0);
    while let Ok(one) = told.recv().await {
        let (its_bytes, its_sum) = one?;
        (files, bytes, sum) = (files + 1, bytes + its_bytes, sum + its_sum);
    }
    Ok((files, bytes, sum))
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let choice = choose::choose(None, None)?;
    let runtime = Runtime::builder(choice.driver()).features(choice.features()).build()?;
    let (files, bytes, sum) = runtime.block_on(sum_beneath(folder))??;
    println!("{files} files, {bytes} bytes, sum {sum}, {choice}");
    Ok(())
}
