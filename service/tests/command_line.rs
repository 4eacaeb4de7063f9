//! How command lines are read and what they are refused for.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use support::{Args, PROGRAM};
use switchyard_service::{
    config::{ByteSize, LogFormat},
    listen, program,
};

fn parse(flags: &[&str]) -> Result<Args, clap::Error> {
    program::parse_from(&PROGRAM, ["switchyard-test"].iter().chain(flags))
}

/// The first line of a refusal, after checking that it makes the program end with 2.
fn refusal(flags: &[&str]) -> String {
    let error = parse(flags).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string().lines().next().unwrap().to_owned()
}

#[test]
fn defaults_are_those_of_the_contract() {
    let args = parse(&[]).unwrap().serve;
    assert_eq!(args.listen.to_string(), "127.0.0.1:7001");
    assert_eq!(args.grace_period().as_secs(), 30);
    assert_eq!(args.max_message_bytes, ByteSize(16 << 20));
    assert_eq!(args.log.to_string(), "info");
    assert_eq!(args.log_format, None);
    assert!(!args.insecure_listen);
}

#[test]
fn flags_are_read_with_their_units() {
    let line =
        ["--listen", "[::1]:0", "--grace-period", "1m30s", "--max-message-bytes", "1MiB", "--log-format", "json"];
    let args = parse(&line).unwrap().serve;
    assert_eq!(args.listen.port(), 0);
    assert_eq!(args.grace_period().as_secs(), 90);
    assert_eq!(args.max_message_bytes(), 1 << 20);
    assert_eq!(args.log_format, Some(LogFormat::Json));
}

#[test]
fn every_flag_has_an_environment_variable_and_says_its_default() {
    let mut command = <Args as clap::CommandFactory>::command();
    command.build();
    for argument in command.get_arguments() {
        let Some(flag) = argument.get_long() else { continue };
        if ["help", "version"].contains(&flag) {
            continue;
        }
        let wanted = format!("SWITCHYARD_{}", flag.to_uppercase().replace('-', "_"));
        assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(wanted.as_str()));
        let help = argument.get_help().unwrap().to_string();
        let switch = !argument.get_action().takes_values();
        let defaulted = flag == "listen" || !argument.get_default_values().is_empty();
        assert!(switch || defaulted || help.contains("Default:"), "--{flag}: {help}");
    }
    let help = parse(&["--help"]).unwrap_err().to_string();
    assert!(help.contains("[default: 127.0.0.1:7001]"), "{help}");
    assert!(help.contains("[default: 16MiB]"), "{help}");
}

#[test]
fn an_address_open_to_others_needs_permission() {
    for open in ["0.0.0.0:7001", "192.0.2.1:7001", "[::]:7001"] {
        let said = refusal(&["--listen", open]);
        assert!(said.contains(open) && said.contains("--insecure-listen"), "{said}");
        assert!(parse(&["--listen", open, "--insecure-listen"]).is_ok());
        assert!(parse(&["--listen", open, "--tls-cert", "c.pem", "--tls-key", "k.pem"]).is_ok());
    }
    for own in ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert!(parse(&["--listen", own]).is_ok(), "{own}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_and_not_ignored() {
    refusal(&["--metrics-listen", "9000"]);
    refusal(&["--tls-cert", "c.pem"]);
    refusal(&["--tls-client-ca", "ca.pem"]);
    refusal(&["--grace-period", "30"]);
    refusal(&["--max-message-bytes", "lots"]);
    refusal(&["--log", "info,=x=y"]);
    refusal(&["--no-such-flag"]);
}

#[tokio::test]
async fn the_port_file_holds_the_address_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("port");
    let line = ["--listen", "127.0.0.1:0", "--port-file", path.to_str().unwrap()];

    let listener = listen::bind(&parse(&line).unwrap().serve).await.unwrap();

    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written, format!("{}\n", listener.local_addr().unwrap()));
    assert_ne!(listener.local_addr().unwrap().port(), 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_port_file_that_cannot_be_written_is_named() {
    let line = ["--listen", "127.0.0.1:0", "--port-file", "/no/such/folder/port"];
    let error = listen::bind(&parse(&line).unwrap().serve).await.unwrap_err();
    assert_eq!(error.to_string(), "could not write the port file /no/such/folder/port");
    assert!(matches!(program::Error::from(error), program::Error::Usage(text) if text.contains("No such file")));
}

/// Case 333.
#[test]
fn metrics_open_to_others_need_permission() {
    for open in ["0.0.0.0:9100", "192.0.2.1:9100", "[::]:9100"] {
        let said = refusal(&["--metrics-listen", open]);
        assert!(
            said.contains(open) && said.contains("--metrics-listen") && said.contains("--insecure-listen"),
            "{said}"
        );
        // TLS guards the calls only.
        refusal(&["--metrics-listen", open, "--tls-cert", "c.pem", "--tls-key", "k.pem"]);
        assert!(parse(&["--metrics-listen", open, "--insecure-listen"]).is_ok());
    }
    assert!(parse(&["--metrics-listen", "127.0.0.1:9100"]).is_ok());
}

/// Case 333.
#[test]
fn what_is_refused_is_said_in_one_sentence_with_flag_and_value() {
    for line in [
        ["--listen", "localhost:7001"],
        ["--metrics-listen", "9000"],
        ["--grace-period", "soon"],
        ["--log", "info,=x=y"],
    ] {
        let said = refusal(&line);
        assert!(said.contains(line[0]) && said.contains(line[1]), "{said}");
    }
    assert!(refusal(&["--listen", "localhost:7001"]).contains("want an IP address and a port, such as 127.0.0.1:7001"));
}
