//! `channels`: tasks that work in a line, each on what the one before gives it, no faster than the one behind
//! takes it; and a call that blocks, on a thread of its own.

use ringroad::{Runtime, choose, sync, task, time};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let choice = choose::choose(None, None)?;
    let runtime = Runtime::builder(choice.driver()).features(choice.features()).build()?;
    let sum = runtime.block_on(async {
        let (numbers, to_square) = sync::bounded(4);
        let (squares, to_add) = sync::bounded(4);
        task::spawn(async move {
            for number in 1..=10u64 {
                time::sleep(Duration::from_millis(1)).await;
                if numbers.send(number).await.is_err() {
                    return;
                }
            }
        })
        .detach();
        task::spawn(async move {
            while let Ok(number) = to_square.recv().await {
                // Computing for long would keep every other task of this runtime waiting.
                let Ok(square) = task::spawn_blocking(move || number * number).await else { return };
                if squares.send(square).await.is_err() {
                    return;
                }
            }
        })
        .detach();
        let mut sum = 0;
        while let Ok(square) = to_add.recv().await {
            sum += square;
        }
        sum
    })?;
    println!("1² + 2² + … + 10² = {sum}, {choice}");
    Ok(())
}
