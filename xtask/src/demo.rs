pub(crate) fn run() -> anyhow::Result<std::process::ExitCode> { Ok(std::process::ExitCode::SUCCESS) }
