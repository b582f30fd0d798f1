//! The command supervisor as a separate binary, for programs that cannot start themselves again as the helper.

fn main() {
    homing_sandbox::process::run_helper_if_asked(std::env::args_os());
    // Reached only if the arguments name no helper stage; 64 is EX_USAGE.
    std::process::exit(64);
}
