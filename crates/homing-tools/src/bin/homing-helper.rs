//! The supervising process as a binary of its own, for programs that do not want to be their own helper.

fn main() {
    homing_sandbox::process::run_helper_if_asked(std::env::args_os());
    // Nobody asked for a stage that exists: this binary does nothing else.
    std::process::exit(64);
}
