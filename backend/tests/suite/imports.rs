//! `backend import`: what it prints, which lines it names, and how it goes on after it was stopped.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;
use sqlx::Executor;
use tempfile::TempDir;

use crate::database::{Database, on_both_databases};
use crate::process::migrate;

on_both_databases! {
    an_import_that_fails_or_is_stopped_says_after_which_line_to_continue,
}

/// What a command said.
struct Said {
    code: Option<i32>,
    printed: String,
    errors: String,
}

/// A workspace in a database, and a folder for files.
struct Place {
    folder: TempDir,
    database: Database,
    workspace: String,
}

impl Place {
    fn new() -> Self {
        Self::with(Database::sqlite())
    }

    fn with(database: Database) -> Self {
        let workspace = new_workspace(&database);
        Self { folder: TempDir::new().unwrap(), database, workspace }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backend"));
        command.args(["import", "--public-url", "https://s.test"]);
        command.args(["--workspace", &self.workspace]);
        command.args(["--database", &self.database.url]);
        command
    }

    fn import(&self, csv: &[u8]) -> Said {
        let file = self.folder.path().join("links.csv");
        std::fs::write(&file, csv).unwrap();
        let output = self.command().arg(file).output().unwrap();
        Said {
            code: output.status.code(),
            printed: String::from_utf8(output.stdout).unwrap(),
            errors: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn new_workspace(database: &Database) -> String {
    migrate(&database.url);
    let seeded = Command::new(env!("CARGO_BIN_EXE_backend"))
        .args(["seed", "--json", "--database", &database.url])
        .output()
        .unwrap();
    let seeded: Value = serde_json::from_slice(&seeded.stdout).unwrap();
    seeded["workspace"].as_str().unwrap().to_owned()
}

#[test]
fn every_line_is_printed_with_its_short_link_or_with_the_reason_why_it_is_refused() {
    let place = Place::new();
    let mut csv = b"url,key,title,archived,tagNames,geo,unknown\n".to_vec();
    for n in 0..250 {
        let line = format!(
            "https://example.com/{n},k{n},\"a, \"\"b\"\"\",true,\"x,y\",\"{{\"\"DE\"\":\"\"de.test\"\"}}\",?\n"
        );
        csv.extend(line.bytes());
    }
    let refused: [&[u8]; 7] = [
        b"nonsense,,,,,,",
        b"https://example.com/,K7,,,,,",
        b"https://example.com/,,,maybe,,,",
        b"https://example.com/,too,few",
        b"https://example.com/,,caf\xe9,,,,",
        b"https://example.com/,,,,,\"{\"\"D\"\": \"\"de.test\"\"}\",",
        b",,no address,,,,",
    ];
    for line in refused {
        csv.extend(line);
        csv.push(b'\n');
    }
    csv.extend(b"https://example.com/last,last,,,,,\n");
    let Said { code, printed, errors } = place.import(&csv);
    assert_eq!(code, Some(3));
    let mut printed = printed.lines();
    for n in 0..250 {
        assert_eq!(printed.next(), Some(&*format!("line {}: https://s.test/r/k{n}", n + 2)));
    }
    let address = "an address of at most 32,000 characters, such as https://example.com/page";
    let boolean = "Invalid input: expected boolean, received string";
    let country = "Invalid key: expected an ISO 3166 country code of two letters";
    let missing = "Invalid input: expected string, received undefined";
    assert_eq!(
        printed.collect::<Vec<_>>(),
        [
            &*format!("line 252, column url: \"nonsense\": Invalid destination URL (accepted: {address})"),
            "line 253, column key: \"K7\": Duplicate key: This short link already exists. (accepted: up to 190 letters, \
             digits, _, -, . and /, unique on the domain)",
            &*format!("line 254, column archived: \"maybe\": {boolean} (accepted: true or false)"),
            "line 255: 3 cells, but the first line has 7. Is a closing quotation mark missing?",
            "line 256: the cell in column title is not UTF-8",
            &*format!(
                "line 257, column geo: \"{{\\\"D\\\": \\\"de.test\\\"}}\": {country} (accepted: addresses by country in JSON, such as \
                 {{\"DE\": \"https://example.de\"}})"
            ),
            &*format!("line 258, column url: \"\": {missing} (accepted: {address})"),
            "line 259: https://s.test/r/last",
            "251 links created, 7 lines refused",
            r#"2 tags created: "x", "y""#,
            "  1 × 3 cells, but the first line has 7. Is a closing quotation mark missing?",
            &*format!("  1 × archived: {boolean}"),
            &*format!("  1 × geo: {country}"),
            "  1 × key: Duplicate key: This short link already exists.",
            "  1 × the cell in column title is not UTF-8",
            "  1 × url: Invalid destination URL",
            &*format!("  1 × url: {missing}"),
        ]
    );
    assert!(errors.contains("the column is ignored") && errors.contains("unknown"), "{errors}");
}

#[test]
fn a_file_that_is_not_of_links_is_refused_with_the_reason() {
    let place = Place::new();
    //  file, exit code, what is printed, what the error says
    let table: [(&[u8], i32, &str, &str); 8] = [
        (b"", 1, "0 links created, 0 lines refused\n", "links.csv: the file is empty\n"),
        (b"\n\r\n", 1, "0 links created", "the file is empty"),
        (b"key,title\na,b\n", 1, "0 links created", "links.csv: the first line has no column \"url\"\n"),
        (
            b"url,key,key\na.test,b,c\n",
            1,
            "0 links created",
            "the first line contains the column \"key\" twice",
        ),
        (b"url,caf\xe9\na.test,b\n", 1, "0 links created", "invalid UTF-8"),
        (b"url,password\na.test,s3cret\n", 3, "0 links created, 1 line refused\n", "1 line refused"),
        (b"url\n", 0, "0 links created, 0 lines refused\n", ""),
        (b"url,title\na.test,all is well", 0, "1 link created, 0 lines refused\n", ""),
    ];
    for (csv, code, prints, says) in table {
        let said = place.import(csv);
        let csv = String::from_utf8_lossy(csv);
        assert_eq!(said.code, Some(code), "{csv:?}: {}", said.errors);
        assert!(
            said.printed.contains(prints) && !said.printed.contains("s3cret"),
            "{csv:?}: {}",
            said.printed
        );
        assert!(said.errors.contains(says), "{csv:?}: {}", said.errors);
    }
}

#[test]
fn lines_have_the_numbers_that_an_editor_shows() {
    let place = Place::new();
    //  what is in the file, the file, the numbers of the lines with an address that is refused
    let table: [(&str, &[u8], &[u64]); 8] = [
        ("a byte order mark", b"\xef\xbb\xbfurl,title\n!,a\n", &[2]),
        ("carriage returns", b"url,title\r\n!,a\r\na.test,b\r\n!,c\r\n", &[2, 4]),
        ("only carriage returns", b"url,title\r!,a\ra.test,b\r!,c", &[2, 4]),
        ("line breaks in quotes", b"url,title\n!,\"a\nb\r\n\r\nc\"\n!,d\n", &[2, 6]),
        ("a line break in the header", b"url,\"title\n\"\n!,a\n", &[3]),
        ("blank lines", b"\n\nurl,title\n\n!,a\n\n\n!,b\n", &[5, 8]),
        ("blank lines with carriage returns", b"url,title\r\n\r\n!,a\r\n\r\n\r\n!,b", &[3, 6]),
        ("a line of spaces, which is too short", b"url,title\n   \n!,a\n", &[2, 3]),
    ];
    for (what, csv, expected) in table {
        let printed = place.import(csv).printed;
        let refused =
            printed.lines().filter(|line| line.starts_with("line ") && !line.contains(": https://"));
        let number = |line: &str| line[5..].split([',', ':']).next().unwrap().parse::<u64>().unwrap();
        assert_eq!(refused.map(number).collect::<Vec<_>>(), expected, "{what}: {printed}");
    }
}

#[test]
fn a_record_with_a_stray_quotation_mark_is_refused_and_the_next_line_is_a_record_of_its_own() {
    let (open, text) =
        ("a quotation mark is not closed at the end of the file", "text follows a closing quotation mark");
    let place = Place::new();
    let refused = |lines: &str, reason: &str| match lines.split_once('-') {
        Some((first, _)) => format!("lines {lines}: {reason}; line {first} is left out"),
        None => format!("line {lines}: {reason}"),
    };
    let made = |line: u64, key: &str| format!("line {line}: https://s.test/r/{key}");
    //  lines after the header `url,key,title`, and what is printed of them
    let table = [
        ("a.test,a1,\"oops\nb.test,a2,ok\n", vec![refused("2-3", open), made(3, "a2")]),
        ("a.test,b1,\"oops\n", vec![refused("2", open)]),
        ("a.test,c1,\"oops", vec![refused("2", open)]),
        (
            "a.test,d1,\"oops\nb.test,d2,\"ok\"\nc.test,d3,ok\n",
            vec![refused("2-3", text), made(3, "d2"), made(4, "d3")],
        ),
        (
            "a.test,e1,ok\r\nb.test,e2,\"oops\r\n\r\nc.test,e3,\"ok\"\r\n",
            vec![made(2, "e1"), refused("3-5", text), made(5, "e3")],
        ),
        // One after the other.
        (
            "a.test,f1,\"oops\nb.test,f2,\"oops\nc.test,f3,ok\n",
            vec![refused("2-3", text), refused("3-4", open), made(4, "f3")],
        ),
        ("a.test,g1,\"oops\" no\nb.test,g2,ok\n", vec![refused("2", text), made(3, "g2")]),
        ("a.test,h1,\"a\"\"b\nc, d\n\"\"\" \nb.test,h2,\"\"\n", vec![made(2, "h1"), made(5, "h2")]),
        ("a.test,i1,5\" disk\nb.test,i2, \"ok\"\n", vec![made(2, "i1"), made(3, "i2")]),
    ];
    for (lines, expected) in table {
        let said = place.import(format!("url,key,title\n{lines}").as_bytes());
        let count = expected.len();
        assert_eq!(said.printed.lines().take(count).collect::<Vec<_>>(), expected, "{lines:?}");
        let refusals = expected.iter().filter(|line| !line.contains("https://")).count();
        let (links, lines) = (count - refusals, if refusals == 1 { "line" } else { "lines" });
        let summary = said.printed.lines().nth(count).unwrap();
        assert!(summary.starts_with(&format!("{links} link")), "{summary}");
        assert!(summary.ends_with(&format!(" {refusals} {lines} refused")), "{summary}");
        assert_eq!(said.code, Some(if refusals > 0 { 3 } else { 0 }));
    }
    // More than are read at once, so that the memory that an import needs does not depend on the file.
    let long = "x".repeat(2 << 20);
    let said = place.import(format!("url,key\na.test,{long}\nb.test,j2\n").as_bytes());
    assert!(
        said.printed.starts_with("line 2: the record has more than 1 MiB\nline 3: https://s.test/r/j2\n")
    );
    let lines = format!("b.test,k2,{}\n", "x".repeat(20_000)).repeat(100);
    let said = place.import(format!("url,key,more\na.test,\"oops\n{lines}").as_bytes());
    assert!(said.printed.starts_with("lines 2-"), "{}", &said.printed[..200]);
    assert!(said.printed.contains("; line 2 is left out\nline 3: https://s.test/r/k2\n"));
}

#[test]
fn the_columns_may_have_line_breaks_in_quotes_and_no_stray_quotation_mark() {
    let place = Place::new();
    for (header, reason) in [
        ("url,\"title\n", "a quotation mark is not closed at the end of the file"),
        ("url,\"title\"x\n", "text follows a closing quotation mark"),
    ] {
        let said = place.import(format!("{header}a.test,b\n").as_bytes());
        assert_eq!((said.code, &*said.printed), (Some(1), "0 links created, 0 lines refused\n"));
        assert!(said.errors.ends_with(&format!("links.csv: the columns: {reason}\n")), "{}", said.errors);
    }
    let said = place.import(b"\xef\xbb\xbf\"url\",\"tit\nle\"\na.test,b\n");
    assert_eq!(said.code, Some(0), "{}", said.errors);
}

#[test]
fn the_tags_that_an_import_makes_are_printed() {
    let place = Place::new();
    //  line, tags that it makes
    let table = [
        ("a.test,\"old, new\"", Some("2 tags created: \"old\", \"new\"")),
        ("a.test,OLD", None),
        ("a.test,third", Some("1 tag created: \"third\"")),
        ("a.test,", None),
    ];
    for (line, expected) in table {
        let said = place.import(format!("url,tagNames\n{line}\n").as_bytes());
        let made = said.printed.lines().find(|line| line.contains("created: "));
        assert_eq!(made, expected, "{line}: {}", said.printed);
        assert_eq!(said.code, Some(0));
    }
}

#[test]
fn a_line_that_the_store_refuses_is_named_with_the_column() {
    let place = Place::new();
    //  columns of a line after another line with the key `taken` and the id `e1`, the column, the reason
    let table = [
        (",,taken,,,,", "key", "Duplicate key"),
        (",,,e1,,,", "externalId", "already"),
        (",,,,tag_none,,", "tagIds", "The workspace has no such tag."),
        (",,,,,fold_none,", "folderId", "The workspace has no such folder."),
        (",,,,,,other.test", "domain", "Domain does not belong to workspace."),
        (",,,,,,go.test", "domain", "Domain does not belong to workspace."),
        (",,cafe\u{301},,,,", "key", "Invalid key."),
        (",,do\u{200b}cs,,,,", "key", "Invalid key."),
    ];
    let assigned = Command::new(env!("CARGO_BIN_EXE_backend"))
        .args(["domains", "assign", "--database", &place.database.url, "--workspace"])
        .args([&*new_workspace(&place.database), "go.test"])
        .output()
        .unwrap();
    assert!(assigned.status.success(), "{}", String::from_utf8_lossy(&assigned.stderr));
    for (cells, column, reason) in table {
        let header = "url,title,key,externalId,tagIds,folderId,domain\n";
        let csv = format!("{header}a.test,,taken,e1,,,\na.test{cells}\n");
        let said = place.import(csv.as_bytes());
        let line = said.printed.lines().find(|line| line.starts_with(&format!("line 3, column {column}: ")));
        assert!(line.is_some_and(|line| line.contains(reason)), "{cells}: {}", said.printed);
        assert_eq!(said.code, Some(3), "{}", said.errors);
    }
}

/// An import of lines that are written one after the other.
struct Import {
    child: Child,
    printed: BufReader<ChildStdout>,
}

impl Import {
    fn start(place: &Place, options: &[&str]) -> Self {
        let mut command = place.command();
        command.args(options).arg("/dev/stdin");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let printed = BufReader::new(child.stdout.take().unwrap());
        Self { child, printed }
    }

    fn write(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Reads what is printed up to a line.
    fn read_up_to(&mut self, expected: &str) {
        let found = self.printed.by_ref().lines().map(Result::unwrap).any(|line| line == expected);
        assert!(found, "{expected}");
    }

    /// Ends the file. The last lines that are printed and the errors.
    fn end(mut self) -> (Option<i32>, Vec<String>, String) {
        drop(self.child.stdin.take());
        let printed = self.printed.lines().map(Result::unwrap).collect();
        let output = self.child.wait_with_output().unwrap();
        (output.status.code(), printed, String::from_utf8(output.stderr).unwrap())
    }
}

async fn an_import_that_fails_or_is_stopped_says_after_which_line_to_continue(database: Database) {
    let place = Place::with(database);
    let lines = |numbers: std::ops::Range<u32>| -> String {
        numbers.map(|n| format!("https://example.com/{n},k{n}\n")).collect()
    };
    let rename = async |from: &str, to: &str| {
        let rename = format!("ALTER TABLE {from} RENAME TO {to}");
        place.database.connect().await.execute(sqlx::AssertSqlSafe(rename)).await.unwrap();
    };

    let mut import = Import::start(&place, &[]);
    import.write("url,key\n");
    import.write(&lines(0..100));
    import.read_up_to("line 101: https://s.test/r/k99");
    rename("links", "gone").await;
    import.write(&lines(100..250));
    let (code, printed, errors) = import.end();
    assert_eq!((code, &*printed), (Some(1), &["100 links created, 0 lines refused".to_owned()][..]));
    assert!(errors.contains("To continue, repeat the command with --after-line 101"), "{errors}");
    rename("gone", "links").await;

    let mut import = Import::start(&place, &["--after-line", "101"]);
    import.write("url,key\n");
    import.write(&lines(0..200));
    import.read_up_to("line 201: https://s.test/r/k199");
    let stopped = Command::new("kill").args(["-INT", &import.child.id().to_string()]).status();
    assert!(stopped.unwrap().success());
    let mut errors = BufReader::new(import.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(errors.any(|line| line.contains("stopping after the current lines")));
    // An import that was just between two batches has stopped already, and reads no more.
    let more = import.child.stdin.as_mut().unwrap().write_all(lines(200..300).as_bytes());
    let message = errors.last().unwrap();
    let (code, printed, _) = import.end();
    let (created, last_line) = if printed.iter().any(|line| line.starts_with("line 301: ")) {
        more.unwrap();
        (200, 301)
    } else {
        (100, 201)
    };
    assert_eq!((code, printed.last()), (Some(1), Some(&format!("{created} links created, 0 lines refused"))));
    let expected = format!("stopped. To continue, repeat the command with --after-line {last_line}");
    assert!(message.contains(&expected), "{message}");
}
