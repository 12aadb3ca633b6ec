//! Deletion in the background, in steps: of what workspace 0 has, which are deleted links, tags, folders and webhooks, and of webhook events.

use jiff::Timestamp;
use sqlx::Row;

use super::sql::Sql;
use super::{ROWS_PER_STEP, Store, StoreError};

/// About the most bytes of long texts that one transaction deletes.
const BYTES_PER_STEP: i64 = 256 * 1024;
/// How many rows a large row counts as. A large row has entries in indexes and statements of its own, or other rows refer to it.
const LARGE: i64 = 10;

/// A kind of rows that are deleted, after the rows that refer to them.
struct Kind {
    /// The query for the next of them, up to a number and after it: their numbers, and the sizes of their long texts.
    find: (&'static str, &'static str),
    lock: &'static str,
    references: &'static [References],
    /// The statement that deletes them, up to the condition on their numbers.
    delete: &'static str,
}

/// Rows that refer to another one.
struct References {
    /// The beginning of the statement that removes some of them.
    remove: &'static str,
    /// Where they are, and the columns that name one.
    from: &'static str,
    key: &'static str,
    /// The column with the number to which they refer.
    to: &'static str,
    order: &'static str,
    lock: &'static str,
    /// What each counts for.
    weight: i64,
}

const fn deleted(
    remove: &'static str,
    from: &'static str,
    key: &'static str,
    to: &'static str,
    order: &'static str,
) -> References {
    References { remove, from, key, to, order, lock: "", weight: 1 }
}

const LINKS: Kind = Kind {
    find: (
        "SELECT dl.link_seq, CAST(octet_length(l.url) + octet_length(l.details) AS BIGINT)
         FROM deleted_links dl JOIN links l ON l.seq = dl.link_seq WHERE dl.link_seq > ",
        " ORDER BY dl.link_seq LIMIT 50",
    ),
    lock: " FOR UPDATE OF dl SKIP LOCKED",
    references: &[
        deleted("DELETE FROM clicks", "clicks", "seq", "link_seq", "at"),
        deleted("DELETE FROM clicks_hourly", "clicks_hourly", "link_seq, bucket", "link_seq", "bucket"),
        deleted("DELETE FROM clicks_daily", "clicks_daily", "link_seq, bucket", "link_seq", "bucket"),
        deleted("DELETE FROM link_tags", "link_tags", "link_seq, tag_seq", "link_seq", "tag_seq"),
    ],
    delete: "DELETE FROM links WHERE seq",
};

/// One tag at a time, and its links in the order in which requests lock them, so that the two never deadlock.
const TAGS: Kind = Kind {
    find: ("SELECT g.seq, CAST(0 AS BIGINT) FROM tags g WHERE g.workspace_seq = ", " LIMIT 1"),
    lock: " FOR UPDATE SKIP LOCKED",
    references: &[References {
        lock: " FOR UPDATE",
        ..deleted("DELETE FROM link_tags", "link_tags", "tag_seq, link_seq", "tag_seq", "link_seq")
    }],
    delete: "DELETE FROM tags WHERE seq",
};

/// Like [`TAGS`].
const FOLDERS: Kind = Kind {
    find: ("SELECT d.seq, CAST(0 AS BIGINT) FROM folders d WHERE d.workspace_seq = ", " LIMIT 1"),
    lock: " FOR UPDATE SKIP LOCKED",
    references: &[References {
        remove: "UPDATE links SET folder_id = NULL",
        from: "links JOIN folders d ON d.id = links.folder_id",
        key: "links.seq",
        to: "d.seq",
        order: "links.seq",
        lock: " FOR UPDATE OF links",
        weight: 1,
    }],
    delete: "DELETE FROM folders WHERE seq",
};

const WEBHOOKS: Kind = Kind {
    find: ("SELECT h.seq, CAST(0 AS BIGINT) FROM webhooks h WHERE h.workspace_seq = ", " LIMIT 1"),
    lock: " FOR UPDATE SKIP LOCKED",
    references: &[References { to: "webhook_seq", order: "seq", ..DELIVERIES }],
    delete: "DELETE FROM webhooks WHERE seq",
};

/// The deliveries of an event, each with up to ten attempts.
const DELIVERIES: References = References {
    weight: LARGE,
    ..deleted("DELETE FROM webhook_deliveries", "webhook_deliveries", "seq", "event_seq", "webhook_seq, seq")
};

/// Events from before an instant.
const EVENTS: Kind = Kind {
    find: (
        "SELECT e.seq, CAST(octet_length(e.payload) AS BIGINT) FROM webhook_events e WHERE e.created_at < ",
        " ORDER BY e.created_at LIMIT 50",
    ),
    lock: " FOR UPDATE SKIP LOCKED",
    references: &[DELIVERIES],
    delete: "DELETE FROM webhook_events WHERE seq",
};

/// Events about clicks from before an instant.
const CLICK_EVENTS: Kind = Kind {
    find: (
        "SELECT e.seq, CAST(octet_length(e.payload) AS BIGINT) FROM webhook_events e
         WHERE e.event = 'link.clicked' AND e.created_at < ",
        " ORDER BY e.created_at LIMIT 50",
    ),
    ..EVENTS
};

impl Store {
    /// Deletes some rows of each kind: deleted links, tags, folders and webhooks, and events from before `events_before`. False if there are
    /// none, or other processes work on them.
    pub(crate) async fn sweep(&self, events_before: Timestamp) -> Result<bool, StoreError> {
        let mut swept = self.delete_some(&EVENTS, events_before.as_millisecond()).await?;
        for kind in [LINKS, TAGS, FOLDERS, WEBHOOKS] {
            swept |= self.delete_some(&kind, 0).await?;
        }
        Ok(swept)
    }

    /// Deletes some events about clicks from before the horizon, with their deliveries. False if there are none, or another process works on
    /// them.
    pub(crate) async fn delete_expired_click_events(&self, kept_from: Timestamp) -> Result<bool, StoreError> {
        self.delete_some(&CLICK_EVENTS, kept_from.as_millisecond()).await
    }

    /// One step, in one transaction.
    async fn delete_some(&self, kind: &Kind, number: i64) -> Result<bool, StoreError> {
        let find = || {
            let mut sql = Sql::new(kind.find.0);
            sql.bind(number).push(kind.find.1);
            sql
        };
        // Usually there is none, and a reader is enough to find that out.
        if find().optional(&self.read).await?.is_none() {
            return Ok(false);
        }
        let mut transaction = self.begin().await?;
        let mut sql = find();
        sql.lock(kind.lock);
        let found = sql.all(&mut *transaction).await?;
        let (mut left, mut bytes, mut emptied) = (ROWS_PER_STEP, 0, Vec::new());
        'found: for row in &found {
            let (seq, size): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            bytes += size;
            if bytes > BYTES_PER_STEP && !emptied.is_empty() {
                break;
            }
            for References { remove, from, key, to, order, lock, weight } in kind.references {
                let most = left / weight;
                if most <= 0 {
                    break 'found;
                }
                let mut sql = Sql::new(remove);
                sql.push(" WHERE (").push(key).push(") IN (SELECT ").push(key).push(" FROM ").push(from);
                sql.push(" WHERE ").push(to).push(" = ").bind(seq).push(" ORDER BY ").push(order);
                sql.push(" LIMIT ").bind(most).lock(lock).push(")");
                let removed = sql.execute(&mut *transaction).await?.cast_signed();
                if removed >= most {
                    break 'found;
                }
                left -= removed * weight;
            }
            emptied.push(seq);
            left -= LARGE;
        }
        if !emptied.is_empty() {
            let mut sql = Sql::new(kind.delete);
            sql.in_numbers(&emptied);
            sql.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(!found.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::super::sample::{NOW, Sample, public};
    use super::super::{LinkSelector, NewWebhook};
    use super::*;
    use crate::domain::folder::Folder;
    use crate::domain::tag::Tag;

    /// Maximum number of deliveries of a step.
    const DELIVERIES_PER_STEP: i64 = ROWS_PER_STEP / LARGE;

    #[tokio::test]
    async fn a_step_deletes_rows_of_several_links_and_not_too_many() {
        //  number of links, clicks on each, length of their titles, and the number of links that each step leaves
        let table: [(usize, i64, usize, &[i64]); 6] = [
            (1, 0, 0, &[0]),
            (1, 5 * ROWS_PER_STEP / 2, 0, &[1, 1, 0]),
            (ROWS_PER_STEP as usize / 5, 0, 0, &[54, 8, 0]),
            // Each has two clicks, a row in each rollup and a tag.
            (40, 2, 0, &[7, 0]),
            // Some of the second one's clicks are left to the next step.
            (3, 300, 0, &[2, 0]),
            (10, 0, 32_000, &[2, 0]),
        ];
        for (links, clicks, title, expected) in table {
            let mut sample = Sample::new().await;
            sample.store.create_label(&sample.workspace, Tag::named("t")).await.unwrap();
            let body = json!({"url": "https://example.com", "tagNames": ["t"], "title": "t".repeat(title)});
            let kept = sample.links(1, &body).await;
            sample.click(&kept[0], 3).await;
            let deleted = sample.links(links, &body).await;
            for link in &deleted {
                sample.click(link, clicks).await;
            }
            let selectors: Vec<_> = deleted.into_iter().map(|link| LinkSelector::Id(link.id)).collect();
            sample.store.delete_links(&sample.workspace, &selectors, NOW).await.unwrap();
            let mut clicks_left = sample.rows("clicks").await;
            assert_eq!(clicks_left, 3 + clicks * links as i64, "none in the request");
            let mut left = Vec::new();
            while sample.store.sweep(NOW).await.unwrap() {
                left.push(sample.rows("links").await - 1);
                let before = clicks_left;
                clicks_left = sample.rows("clicks").await;
                assert!(before - clicks_left <= ROWS_PER_STEP, "{before} became {clicks_left}");
                sample.reopen().await;
            }
            assert_eq!(left, expected, "{links} links with {clicks} clicks");
            assert_eq!((clicks_left, sample.rows("deleted_links").await), (3, 0));
            for table in ["link_tags", "link_totals", "clicks_hourly", "clicks_daily"] {
                assert_eq!(sample.rows(table).await, 1, "{table}");
            }
        }
    }

    #[tokio::test]
    async fn links_lose_a_deleted_tag_or_folder_in_bounded_steps() {
        const LINKS: i64 = 5 * ROWS_PER_STEP / 2;
        let sample = Sample::new().await;
        let (store, workspace) = (&sample.store, &sample.workspace);
        let tag = store.create_label(workspace, Tag::named("t")).await.unwrap();
        let folder = Folder {
            id: "fold_1".to_owned(),
            name: "f".to_owned(),
            description: None,
            created_at: NOW,
            updated_at: NOW,
        };
        let folder = store.create_label(workspace, folder).await.unwrap();
        let body = json!({"url": "https://example.com", "tagIds": [tag.id], "folderId": folder.id});
        sample.links(LINKS as usize, &body).await;
        assert!(!store.sweep(NOW).await.unwrap());
        assert!(store.delete_label::<Tag>(workspace, &tag.id).await.unwrap());
        assert!(store.delete_label::<Folder>(workspace, &folder.id).await.unwrap());
        for left in [LINKS, LINKS - ROWS_PER_STEP, LINKS - 2 * ROWS_PER_STEP, 0] {
            let filed = sample.number("SELECT COUNT(*) FROM links WHERE folder_id IS NOT NULL").await;
            assert_eq!((sample.rows("link_tags").await, filed), (left, left));
            assert_eq!(store.sweep(NOW).await.unwrap(), left > 0);
        }
        assert_eq!((sample.rows("tags").await, sample.rows("folders").await), (0, 0));
    }

    /// A webhook that had deliveries, of ten attempts each. Its id.
    async fn with_deliveries(sample: &Sample, deliveries: i64) -> String {
        let store = &sample.store;
        let webhook =
            store.create_webhook(&sample.workspace, &NewWebhook::of_clicks(), 1, NOW).await.unwrap();
        let links = sample.links(1, &json!({"url": "https://example.com"})).await;
        sample.click(&links[0], deliveries).await;
        // As if a process had taken them all.
        let all = [(webhook.seq, deliveries as usize)];
        let leased = store.lease_deliveries(&all, SignedDuration::ZERO, NOW, &public()).await.unwrap();
        assert_eq!(leased.deliveries.len(), deliveries as usize);
        let attempts = "INSERT INTO webhook_attempts (delivery_seq, at, response_body) SELECT d.seq, 0, ''
                        FROM webhook_deliveries d, json_each('[1,2,3,4,5,6,7,8,9,10]')";
        Sql::new(attempts).execute(&store.write).await.unwrap();
        webhook.id
    }

    #[tokio::test]
    async fn deliveries_of_a_deleted_webhook_are_deleted_in_bounded_steps_by_one_process_after_another() {
        const ALL: i64 = 5 * DELIVERIES_PER_STEP / 2;
        let mut sample = Sample::new().await;
        let id = with_deliveries(&sample, ALL).await;
        assert!(!sample.store.sweep(NOW).await.unwrap(), "none is deleted");
        assert!(sample.store.delete_webhook(&sample.workspace, &id).await.unwrap());
        assert!(!sample.store.delete_webhook(&sample.workspace, &id).await.unwrap(), "only once");
        for left in [ALL, ALL - DELIVERIES_PER_STEP, ALL - 2 * DELIVERIES_PER_STEP, 0] {
            let rows = (sample.rows("webhook_deliveries").await, sample.rows("webhook_attempts").await);
            assert_eq!(rows, (left, 10 * left));
            assert_eq!(sample.store.sweep(NOW).await.unwrap(), left > 0);
            sample.reopen().await;
        }
        assert_eq!(sample.rows("webhooks").await, 0);
    }

    #[tokio::test]
    async fn old_events_are_deleted_in_bounded_steps() {
        const ALL: i64 = 5 * DELIVERIES_PER_STEP / 2;
        let sample = Sample::new().await;
        with_deliveries(&sample, ALL).await;
        assert!(!sample.store.sweep(NOW).await.unwrap(), "none is older");
        // Each event is replayed twice.
        let replays = "INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts)
                       SELECT d.event_seq, d.webhook_seq, 0 FROM webhook_deliveries d, json_each('[1,2]')";
        Sql::new(replays).execute(&sample.store.write).await.unwrap();
        let before = NOW + SignedDuration::from_millis(1);
        let (mut steps, mut deliveries, mut events) = (0, 3 * ALL, ALL);
        while sample.store.sweep(before).await.unwrap() {
            steps += 1;
            let left = (sample.rows("webhook_deliveries").await, sample.rows("webhook_events").await);
            assert!(deliveries - left.0 <= DELIVERIES_PER_STEP, "{deliveries} became {}", left.0);
            assert!(events - left.1 <= DELIVERIES_PER_STEP, "{events} became {}", left.1);
            (deliveries, events) = left;
        }
        assert_eq!((deliveries, events), (0, 0));
        assert!(steps >= 8, "{steps} steps");
    }
}
