// A lock at Redis, in Rust, with the standard library alone: rustc -O lock.rs (or, static, with a musl target).
use std::fs;
use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::thread::sleep;
use std::time::Duration;

const ACQUIRE: &str = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
    return redis.call('incr', KEYS[1] .. ':token') end return 0";
const RENEW: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";
const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
const ERRORS: [(&str, &str); 4] =
    [("held by another", "fail"), ("not held", "fail"), ("connect: ", "fail"), ("*", "info")];

struct Lock {
    address: String,
    name: String,
    ttl: f64,
    limit: Duration,
    owner: String,
    connection: Option<BufReader<TcpStream>>,
}

/// CLOCK_BOOTTIME, which no fault moves, rounded down; std's Instant is not it.
fn now() -> f64 {
    let text = fs::read_to_string("/proc/uptime").expect("/proc/uptime");
    text.split(' ').next().unwrap().parse().unwrap()
}

/// What stands behind a key; the harness sends no space between. A crate for JSON does as well.
fn field<'a>(line: &'a str, key: &str) -> &'a str {
    let mark = format!("\"{key}\":");
    let rest = line.find(&mark).map(|at| &line[at + mark.len()..]).unwrap_or("");
    let rest = rest.trim_start_matches('"');
    &rest[..rest.find([',', '}', '"']).unwrap_or(rest.len())]
}

fn failed(text: &str) -> String {
    let mut found = ERRORS[3];
    for each in ERRORS {
        if text.starts_with(each.0) && (found.0 == "*" || each.0.len() > found.0.len()) {
            found = each;
        }
    }
    let shown = text.replace(['"', '\\'], "?");
    format!("\"type\":\"{}\",\"error\":\"{}\"", found.1, shown)
}

impl Lock {
    /// Run a script once, on a connection that is kept, with one deadline.
    fn ask(&mut self, script: &str) -> io::Result<i64> {
        let answer = self.asked(script);
        if answer.is_err() {
            self.connection = None; // what comes late must not be taken for the next answer
        }
        answer
    }

    fn connected(&self) -> io::Result<BufReader<TcpStream>> {
        let place = self.address.to_socket_addrs()?.next().ok_or(ErrorKind::NotFound)?;
        let made = TcpStream::connect_timeout(&place, self.limit)?;
        made.set_read_timeout(Some(self.limit))?;
        made.set_write_timeout(Some(self.limit))?;
        Ok(BufReader::new(made))
    }

    fn asked(&mut self, script: &str) -> io::Result<i64> {
        if self.connection.is_none() {
            let made = self.connected().map_err(|error| Error::new(error.kind(), format!("connect: {error}")))?;
            self.connection = Some(made);
        }
        let ttl = format!("{}", (self.ttl * 1000.0).round());
        let mut text = String::from("*6\r\n");
        for word in ["EVAL", script, "1", &self.name, &self.owner, &ttl] {
            text += &format!("${}\r\n{}\r\n", word.len(), word);
        }
        let connection = self.connection.as_mut().unwrap();
        connection.get_mut().write_all(text.as_bytes())?;
        let mut line = String::new();
        connection.read_line(&mut line)?;
        match line.strip_prefix(':').and_then(|number| number.trim().parse().ok()) {
            Some(number) => Ok(number),
            None => Err(Error::new(ErrorKind::Other, format!("redis: {}", line.trim()))),
        }
    }

    fn acquire(&mut self, wait: f64) -> io::Result<String> {
        let mut bytes = [0u8; 12];
        fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        self.owner = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let end = now() + wait;
        loop {
            let sent = now(); // before the request: from then on the lease may count
            let token = self.ask(ACQUIRE)?;
            if token > 0 {
                return Ok(format!("\"type\":\"ok\",\"token\":{token},\"since\":{{\"at\":{sent}}}"));
            }
            if now() >= end {
                return Ok(failed("held by another"));
            }
            sleep(Duration::from_millis(50));
        }
    }

    fn compared(&mut self, script: &str) -> io::Result<String> {
        // The script compares the owner: either answer is the service's word.
        Ok(match self.ask(script)? {
            0 => failed("not held") + ",\"held\":false",
            _ => String::from("\"type\":\"ok\",\"proves\":true"),
        })
    }
}

fn main() {
    let mut lines = io::stdin().lock().lines().map(|line| line.expect("stdin"));
    let config = lines.next().expect("a config");
    let endpoint = config.split("\"endpoints\":[[\"").nth(1).expect("an endpoint");
    let (host, rest) = endpoint.split_once("\",").expect("a port");
    let port = &rest[..rest.find(']').unwrap()];
    let mut lock = Lock {
        address: format!("{host}:{port}"),
        name: field(&config, "lock").to_string(),
        ttl: field(&config, "ttl").parse().expect("ttl"),
        limit: Duration::from_secs_f64(field(&config, "operation_seconds").parse().expect("operation_seconds")),
        owner: String::new(),
        connection: None,
    };
    let errors: Vec<String> = ERRORS.iter().map(|(key, meant)| format!("\"{key}\":\"{meant}\"")).collect();
    println!(
        "{{\"hello\":{{\"protocol\":1,\"library\":\"redis by hand\",\"version\":\"1\",\"language\":\"Rust\",\
         \"renewals\":\"asked\",\"tokens\":true,\"expires\":true,\"errors\":{{{}}}}}}}",
        errors.join(",")
    );
    for line in lines {
        let said = match field(&line, "do") {
            "acquire" => lock.acquire(field(&line, "wait").parse().expect("wait")),
            "renew" => lock.compared(RENEW),
            _ => lock.compared(RELEASE),
        };
        println!("{{\"id\":{},{}}}", field(&line, "id"), said.unwrap_or_else(|error| failed(&error.to_string())));
    }
}
