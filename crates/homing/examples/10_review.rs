//! The built-in reviewer looks at the last commit of the project in this folder.

use homing::{Homing, Limits, Task};

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    homing::run_helper_if_asked(); // agents' commands run below a second process of this program
    let homing = Homing::coding(".").build()?;
    let limits = Limits::default().cost_usd("0.50")?;
    let run = homing.spawn(Task::new("code-review", "Review the last commit").limits(limits))?;
    let result = run.await; // not an error, even if the run failed
    println!("{}\n{}", result.output, result.tree());
    Ok(())
}
