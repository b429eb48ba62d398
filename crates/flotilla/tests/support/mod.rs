//! A playground as a process, and an API server in front of it that does not answer everything.

use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A playground of its own; it ends with the test.
pub(crate) struct Playground {
    child: Child,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) client: Client,
}

impl Drop for Playground {
    fn drop(&mut self) {
        // It may have ended by itself, and the file may never have been written.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

pub(crate) fn flotilla() -> Command {
    Command::new(env!("CARGO_BIN_EXE_flotilla"))
}

impl Playground {
    pub(crate) async fn begin(name: &str) -> Self {
        let kubeconfig = std::env::temp_dir().join(format!("flotilla-answers-{name}-{}.yaml", std::process::id()));
        let mut command = flotilla();
        command.args(["playground", "--speed", "20", "--write-kubeconfig"]);
        command.arg(&kubeconfig).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let is_up = lines.any(|line| line.is_ok_and(|line| line.contains("Ctrl-C")));
        assert!(is_up, "the playground ended early");
        let file = Kubeconfig::read_from(&kubeconfig).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.expect("a context")).expect("a client");
        Playground {
            child,
            kubeconfig,
            client,
        }
    }
}

/// What the API server does not answer as it should, by method and the beginning of a path: the code that it answers with, and what it says.
pub(crate) type Limits = &'static [(&'static str, &'static str, u16, &'static str)];

/// The playground as somebody sees it to whom its API server answers within these limits: a kubeconfig.
pub(crate) async fn within(lab: &Playground, limits: Limits) -> PathBuf {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let client = lab.client.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(client.clone(), stream, limits));
        }
    });
    let kubeconfig = lab.kubeconfig.with_extension("user.yaml");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
         users: [{{name: c, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: c, namespace: default}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).expect("a file of our own");
    kubeconfig
}

/// Answers one request, and closes the connection.
async fn answer(client: Client, stream: TcpStream, limits: Limits) {
    let mut stream = tokio::io::BufReader::new(stream);
    let (mut line, mut accept, mut length) = (String::new(), "application/json".to_owned(), 0);
    stream.read_line(&mut line).await.expect("a request");
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await.expect("headers");
        match header.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("accept") => value.clone_into(&mut accept),
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().expect("bytes");
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.expect("a body");
    let asked = format!("{path}?");
    let refused = limits
        .iter()
        .find(|(verb, prefix, ..)| *verb == method && asked.starts_with(prefix));
    let (status, content_type, bytes) = if let Some((.., code, message)) = refused {
        let reason = if *code == 403 { "Forbidden" } else { "InternalError" };
        let said = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": message});
        (*code, "application/json".to_owned(), said.to_string().into_bytes())
    } else {
        let request = Request::builder().method(&*method).uri(&*path).header(ACCEPT, accept);
        let request = request.body(Body::from(body)).expect("a request");
        let response = client.send(request).await.expect("an answer");
        let content_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or("application/json").to_owned();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await.expect("a body").to_vec();
        (status, content_type, bytes)
    };
    let head = format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        bytes.len()
    );
    let answer = [head.into_bytes(), bytes].concat();
    // Whoever asked may have gone.
    let _ = stream.write_all(&answer).await;
}
