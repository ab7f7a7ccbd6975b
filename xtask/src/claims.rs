//! That no table cell of the documents is missing in `docs/claims.toml`.
//!
//! The documents themselves are not in this repository: they are other people's. So the cells they have are
//! listed here, by the first word of each row and the head of each column, and the claims are held against
//! the list everywhere. Where the documents lie beside the checkout (`../shared/sources`), list and claims
//! are held against the documents too: each row is found there with its figures in order and no other number
//! beside them, each table drawn with bars is known row by row, and each figure of the text is quoted as it
//! stands. Start at [`check`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use toml::{Table as Toml, Value};

/// Where the claims are.
pub(crate) const CLAIMS: &str = "docs/claims.toml";
/// Where the documents are, if they are there: names begin with `000` to `004`.
const DOCUMENTS: &str = "../shared/sources";
/// What stands for a cell of words.
const NO_FIGURE: &str = "–";

/// A table of a document.
struct Table {
    source: &'static str,
    id: &'static str,
    rows: &'static [&'static str],
    columns: &'static [&'static str],
    /// Cells that hold a figure.
    figures: usize,
}

#[rustfmt::skip]
const TABLES: &[Table] = &[
    Table { source: "000", id: "000-bench", rows: &["Node.js (http)", "Golang (net/http)", "Swoole (epoll)", "Swoole (io_uring)"], columns: &["QPS", "平均延迟"], figures: 8 },
    Table { source: "001", id: "001-bench", rows: &["请求/秒 (RPS)", "平均延迟", "内存占用", "CPU峰值利用率"], columns: &["Swoole (PHP)", "Go (Gin)"], figures: 8 },
    Table { source: "001", id: "001-channels", rows: &["同步通信", "异步解耦"], columns: &["缓冲大小", "适用场景"], figures: 2 },
    Table { source: "001", id: "001-techniques", rows: &["异步I/O", "线程池复用", "零拷贝"], columns: &["提升维度", "典型增益"], figures: 2 },
    Table { source: "001", id: "001-sockets", rows: &["SO_RCVBUF", "TCP_NODELAY"], columns: &["建议值", "说明"], figures: 2 },
    Table { source: "001", id: "001-stability", rows: &["P99延迟", "内存占用", "GC暂停时间"], columns: &["Go服务", "Java服务"], figures: 5 },
    Table { source: "001", id: "001-waits", rows: &["10次HTTP请求"], columns: &["同步请求(ms)", "协程并发(ms)"], figures: 2 },
    Table { source: "001", id: "001-fpm", rows: &["FPM + Nginx", "Swoole HTTP Server"], columns: &["连接数", "QPS", "平均延迟(ms)"], figures: 6 },
    Table { source: "001", id: "001-cluster", rows: &["应用服务", "数据库", "压测客户端"], columns: &["配置", "数量"], figures: 6 },
    Table { source: "001", id: "001-100k", rows: &["Nginx + Tomcat", "Spring Cloud Gateway", "Go原生HTTP服务"], columns: &["平均QPS", "P99延迟(ms)", "错误率"], figures: 9 },
    Table { source: "001", id: "001-alarms", rows: &["CPU User%", "CPU Sys%", "上下文切换"], columns: &["高负载表现", "优化方向"], figures: 3 },
    Table { source: "001", id: "001-health", rows: &["连接存活率", "平均重连次数/小时", "写失败率"], columns: &["正常范围", "异常阈值"], figures: 4 },
    Table { source: "001", id: "001-languages", rows: &["Go", "Java", "Rust"], columns: &["平均延迟(ms)", "最大QPS", "内存占用(MB)"], figures: 9 },
    Table { source: "003", id: "003-timeline", rows: &["1980s", "1990s", "1997", "1999", "2000", "2019", "2020s"], columns: &["技术", "复杂度", "并发能力", "备注"], figures: 16 },
    Table { source: "003", id: "003-select-cpu", rows: &["100", "1000", "10000"], columns: &["扫描次数/秒", "CPU 开销"], figures: 5 },
    Table { source: "003", id: "003-poll-select", rows: &["最大 fd 数", "单次调用拷贝", "遍历复杂度", "是否需要重置"], columns: &["select", "poll"], figures: 5 },
    Table { source: "003", id: "003-kqueue-select", rows: &["注册 fd", "传递 fd 列表", "遍历 fd", "返回结果", "最大并发"], columns: &["select/poll", "kqueue/epoll"], figures: 5 },
    Table { source: "003", id: "003-task-memory", rows: &["线程模型", "Tokio 协程"], columns: &["1000 连接内存消耗"], figures: 2 },
    Table { source: "003", id: "003-qps", rows: &["01_blocking", "02_select", "03_poll", "04_kqueue", "05_tokio"], columns: &["10 并发", "50 并发", "100 并发", "500 并发", "1000 并发"], figures: 25 },
    Table { source: "003", id: "003-p99", rows: &["01_blocking", "02_select", "03_poll", "04_kqueue", "05_tokio"], columns: &["10 并发", "50 并发", "100 并发", "500 并发", "1000 并发"], figures: 25 },
    Table { source: "003", id: "003-memory", rows: &["01_blocking", "02_select", "03_poll", "04_kqueue", "05_tokio"], columns: &["1K 连接", "10K 连接"], figures: 10 },
    Table { source: "004", id: "004-datasets", rows: &["ImageNet", "COCO", "MNIST", "CIFAR‑10"], columns: &["文件数", "典型大小"], figures: 8 },
    Table { source: "004", id: "004-nvme", rows: &["100 K × 4 KB 文件 (400 MB)", "100 K × 100 KB 文件 (10 GB)"], columns: &["cp -r", "uring‑sync", "加速比"], figures: 6 },
    Table { source: "004", id: "004-cloud", rows: &["100 K × 4 KB 文件", "100 K × 100 KB 文件"], columns: &["cp -r", "uring‑sync", "加速比"], figures: 6 },
];

/// What was held against what.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) findings: Vec<String>,
    /// The documents were there.
    pub(crate) with_documents: bool,
}

/// Checks the claims of the tree at `root`; a tree without any has nothing to check.
pub(crate) fn check(root: &Path) -> io::Result<Checked> {
    let text = match fs::read_to_string(root.join(CLAIMS)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Checked::default()),
        Err(error) => return Err(error),
    };
    let claims: Toml = match text.parse() {
        Ok(claims) => claims,
        Err(error) => {
            return Ok(Checked {
                findings: vec![format!("not readable as TOML: {error}")],
                ..Checked::default()
            });
        }
    };
    let mut findings = against_the_list(&claims);
    let documents = documents(&root.join(DOCUMENTS))?;
    for (source, text) in &documents {
        findings.extend(against_a_document(&claims, source, text));
    }
    Ok(Checked { findings, with_documents: !documents.is_empty() })
}

/// The documents, by the first three letters of their names.
fn documents(folder: &Path) -> io::Result<Vec<(String, String)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    let mut documents = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(source) =
            name.get(..3).filter(|source| TABLES.iter().any(|table| table.source == *source))
        {
            documents.push((source.to_owned(), plain(&fs::read_to_string(&path)?)));
        }
    }
    Ok(documents)
}

/// With one kind of space, whatever the typesetter preferred.
fn plain(text: &str) -> String {
    text.replace(['\u{a0}', '\u{2009}', '\u{202f}'], " ")
}

fn tables(claims: &Toml) -> impl Iterator<Item = &Value> {
    claims.get("table").and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn lines<'a>(table: &'a Value, key: &str) -> Vec<&'a Value> {
    table.get(key).and_then(Value::as_array).into_iter().flatten().collect()
}

fn cells(row: &Value) -> Vec<&str> {
    row.get("cells").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Every table, row, column and figure of the list is a claim, and the other way round.
fn against_the_list(claims: &Toml) -> Vec<String> {
    let mut findings = Vec::new();
    for known in TABLES {
        let Some(table) = tables(claims).find(|table| text(table, "id") == known.id) else {
            findings.push(format!("table {} of document {} is missing", known.id, known.source));
            continue;
        };
        for (kind, wanted) in [("rows", known.rows), ("columns", known.columns)] {
            let heads: Vec<&str> = lines(table, kind).into_iter().map(|line| text(line, "head")).collect();
            if let Some(missing) = wanted.iter().find(|head| !heads.contains(head)) {
                findings.push(format!("table {} lacks {missing:?} among its {kind}", known.id));
            }
        }
        let figures =
            lines(table, "rows").into_iter().flat_map(cells).filter(|cell| *cell != NO_FIGURE).count();
        if figures != known.figures {
            findings.push(format!("table {} holds {figures} figures and has {}", known.id, known.figures));
        }
    }
    let unknown = tables(claims).map(|table| text(table, "id"));
    let unknown = unknown.filter(|id| !TABLES.iter().any(|known| known.id == *id));
    findings.extend(
        unknown.map(|id| format!("table {id} is not in the list of xtask/src/claims.rs: add its cells")),
    );
    findings
}

/// What the claims quote of a document is there, and no row of its tables is left out.
fn against_a_document(claims: &Toml, source: &str, document: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut rows_found = Vec::new();
    for table in tables(claims).filter(|table| text(table, "source") == source) {
        for row in lines(table, "rows") {
            let (id, head) = (text(table, "id"), plain(text(row, "head")));
            let figures: Vec<String> =
                cells(row).into_iter().filter(|cell| *cell != NO_FIGURE).map(plain).collect();
            let rest = document.lines().find_map(|line| Some((line, without(line, &head, &figures)?)));
            match rest {
                None => {
                    findings.push(format!("{id}: document {source} has no row {head:?} with {figures:?}"))
                }
                Some((line, rest)) => {
                    rows_found.push(line);
                    if rest.contains(|c: char| c.is_ascii_digit()) {
                        findings.push(format!(
                            "{id}: of row {head:?} in document {source} not all is quoted: {rest:?}"
                        ));
                    }
                }
            }
        }
    }
    let with_figures =
        drawn_rows(document).into_iter().filter(|line| line.contains(|c: char| c.is_ascii_digit()));
    for line in with_figures.filter(|line| !rows_found.contains(line)) {
        findings.push(format!("document {source} has a row that is no claim: {line:?}"));
    }
    let figures = claims.get("figure").and_then(Value::as_array).into_iter().flatten();
    for figure in figures.filter(|figure| text(figure, "source") == source) {
        let quote = plain(text(figure, "quote"));
        if !document.contains(&quote) {
            findings.push(format!("{}: document {source} does not say {quote:?}", text(figure, "id")));
        }
    }
    findings
}

/// What is left of a line after its head without the figures; `None` if they are not all there, in this
/// order.
fn without(line: &str, head: &str, figures: &[String]) -> Option<String> {
    let mut rest = line.split_once(head)?.1;
    let mut left = String::new();
    for figure in figures {
        let (before, after) = rest.split_once(figure.as_str())?;
        left.push_str(before);
        rest = after;
    }
    Some(left + rest)
}

/// The rows of tables drawn with bars: what follows a line of bars and dashes, as long as there are bars.
fn drawn_rows(document: &str) -> Vec<&str> {
    let mut rows = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        let rule = line.contains("---") && line.contains('|') && line.chars().all(|c| "|-: ".contains(c));
        if rule {
            inside = true;
        } else if inside && line.contains('|') {
            rows.push(line);
        } else {
            inside = false;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    /// The repository's claims with one text replaced, which must be in them.
    fn changed(from: &str, to: &str) -> Vec<String> {
        let text = fs::read_to_string(repository().join(CLAIMS)).unwrap();
        assert!(text.contains(from), "{from}");
        against_the_list(&text.replacen(from, to, 1).parse().unwrap())
    }

    #[test]
    fn the_claims_of_this_repository_hold_every_cell() {
        assert_eq!(check(&repository()).unwrap().findings, Vec::<String>::new());
    }

    #[test]
    fn a_table_a_row_a_column_or_a_cell_that_is_missing_is_found() {
        for (from, to, part) in [
            ("id = \"003-qps\"\n", "id = \"003-else\"\n", "003-qps of document 003 is missing"),
            ("head = \"02_select\"", "head = \"02\"", "lacks \"02_select\" among its rows"),
            ("head = \"500 并发\"", "head = \"5\"", "lacks \"500 并发\" among its columns"),
            ("\"125K\", \"99K\"", "\"125K\", \"–\"", "holds 24 figures and has 25"),
        ] {
            let found = changed(from, to);
            assert!(found.iter().any(|finding| finding.contains(part)), "{to}: {found:?}");
        }
        let found = changed("id = \"003-qps\"\n", "id = \"003-else\"\n");
        assert!(found.iter().any(|finding| finding.contains("003-else is not in the list")), "{found:?}");
    }

    const CLAIM: &str = r#"
[[table]]
id = "t"
source = "003"
columns = [{ head = "10" }, { head = "note" }]
rows = [{ head = "poll", cells = ["153K", "–"] }]
[[figure]]
id = "f"
source = "003"
quote = "36 %"
"#;

    fn held(document: &str) -> Vec<String> {
        against_a_document(&CLAIM.parse().unwrap(), "003", &plain(document))
    }

    #[test]
    fn a_document_that_says_what_is_claimed_has_no_findings() {
        assert_eq!(held("it fell by 36\u{202f}%\n| a | b |\n|---|---|\n| poll | 153K | steady |\n"), [""; 0]);
    }

    #[test]
    fn figures_that_are_not_in_the_document_and_rows_that_are_no_claims_are_found() {
        for (document, part) in [
            ("36 %\n| poll | 154K |\n", "has no row \"poll\""),
            ("36 %\n| poll | 153K | of 160K |\n", "not all is quoted"),
            ("36 %\n| a |\n|---|\n| poll | 153K |\n| select | 99K |\n", "a row that is no claim"),
            ("| poll | 153K |\n", "does not say \"36 %\""),
        ] {
            let found = held(document);
            assert!(found.len() == 1 && found[0].contains(part), "{document}: {found:?}");
        }
    }
}
