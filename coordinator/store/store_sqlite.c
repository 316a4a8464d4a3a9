/* One coordinator's store: SQLite with a write-ahead log, synced at every commit. The file is
 * locked for as long as it is open. */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/store/store.h"

/* A process that was killed a moment ago holds its lock until the last of its threads is gone. */
enum { SCHEMA_VERSION = 1, LOCK_PATIENCE_MS = 2000 };

struct sqlite_store {
    struct store base;
    sqlite3 *db;
    sqlite3_stmt *put, *remove, *each;
};

/* SQLite's words in ours. */
static int sqlite_fail(sqlite3 *db, const char *doing, struct err *e)
{
    int rc = db ? sqlite3_errcode(db) & 0xff : SQLITE_NOMEM;
    const char *words = db ? sqlite3_errmsg(db) : "no memory";
    switch (rc) {
    case SQLITE_FULL:
        return err_set(e, HP_ENOSPACE, "the store cannot be written while %s: the disk is full",
                       doing);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        err_set(e, HP_EBUSY, "the store is in use by another process");
        return err_hint(e, "is a coordinator with the same --dir running already?");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(e, HP_ECORRUPT, "the store is damaged (%s while %s)", words, doing);
    case SQLITE_NOMEM: return err_set(e, HP_ENOMEM, "no memory while %s", doing);
    default: return err_set(e, HP_EIO, "the store failed while %s: %s", doing, words);
    }
}

static int sqlite_run(sqlite3 *db, const char *sql, const char *doing, struct err *e)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : sqlite_fail(db, doing, e);
}

static void sqlite_close(struct store *base)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    sqlite3_finalize(s->put);
    sqlite3_finalize(s->remove);
    sqlite3_finalize(s->each);
    sqlite3_close(s->db);
    free(s);
}

static int sqlite_apply_one(struct sqlite_store *s, const struct store_change *c, struct err *e)
{
    sqlite3_stmt *stmt = c->bytes ? s->put : s->remove;
    sqlite3_reset(stmt);
    sqlite3_bind_text(stmt, 1, c->kind, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 2, c->key, -1, SQLITE_STATIC);
    if (c->bytes)
        sqlite3_bind_blob64(stmt, 3, c->size ? c->bytes : "", c->size, SQLITE_STATIC);
    int rc = sqlite3_step(stmt) == SQLITE_DONE ? 0 : sqlite_fail(s->db, "writing a record", e);
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
    return rc;
}

static int sqlite_apply(struct store *base, const struct store_change *changes, int n,
                        struct err *e)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    if (n == 0)
        return 0;
    int rc = sqlite_run(s->db, "BEGIN IMMEDIATE", "beginning a change", e);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = sqlite_apply_one(s, &changes[i], e);
    if (rc == 0)
        rc = sqlite_run(s->db, "COMMIT", "committing a change", e);
    /* After some failures SQLite has rolled back by itself, and then says that there is nothing to
     * roll back. */
    if (rc < 0)
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static int sqlite_each(struct store *base, const char *kind, store_each_fn each, void *ctx,
                       struct err *e)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    sqlite3_reset(s->each);
    sqlite3_bind_text(s->each, 1, kind, -1, SQLITE_STATIC);
    int step, rc = 0;
    while (rc >= 0 && (step = sqlite3_step(s->each)) == SQLITE_ROW) {
        const char *key = (const char *)sqlite3_column_text(s->each, 0);
        const void *bytes = sqlite3_column_blob(s->each, 1);
        rc = each(ctx, key, bytes ? bytes : "", (size_t)sqlite3_column_bytes(s->each, 1), e);
    }
    if (rc >= 0 && step != SQLITE_DONE)
        rc = sqlite_fail(s->db, "reading records", e);
    sqlite3_reset(s->each);
    return rc < 0 ? rc : 0;
}

static int sqlite_version_check(struct sqlite_store *s, int *found, struct err *e)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(s->db, "PRAGMA user_version", -1, &stmt, NULL) != SQLITE_OK ||
        sqlite3_step(stmt) != SQLITE_ROW) {
        sqlite3_finalize(stmt);
        return sqlite_fail(s->db, "opening it", e);
    }
    int version = *found = sqlite3_column_int(stmt, 0);
    sqlite3_finalize(stmt);
    if (version > SCHEMA_VERSION)
        return err_set(e, HP_EUNSUPPORTED,
                       "the store is of version %d, this program knows %d: use the newer program",
                       version, SCHEMA_VERSION);
    return 0;
}

static int sqlite_prepare(struct sqlite_store *s, struct err *e)
{
    /* An exclusive lock keeps a second coordinator out, and spares WAL its shared memory file. */
    int rc = sqlite_run(
        s->db, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
        "opening it", e);
    int version = 0;
    if (rc == 0)
        rc = sqlite_version_check(s, &version, e);
    /* One that is made already is read without a byte written: a full disk does not keep its
     * coordinator from starting. */
    if (rc == 0 && version < SCHEMA_VERSION)
        rc = sqlite_run(s->db,
                        "BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS records (kind TEXT NOT NULL, "
                        "key TEXT NOT NULL, value BLOB NOT NULL, "
                        "PRIMARY KEY (kind, key)) WITHOUT ROWID; PRAGMA user_version=1; COMMIT;",
                        "opening it", e);
    if (rc < 0)
        return rc;
    bool good =
        sqlite3_prepare_v2(s->db,
                           "INSERT OR REPLACE INTO records (kind, key, value) VALUES (?1, ?2, ?3)",
                           -1, &s->put, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(s->db, "DELETE FROM records WHERE kind = ?1 AND key = ?2", -1,
                           &s->remove, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(s->db, "SELECT key, value FROM records WHERE kind = ?1 ORDER BY key", -1,
                           &s->each, NULL) == SQLITE_OK;
    return good ? 0 : sqlite_fail(s->db, "opening it", e);
}

static off_t file_bytes(const char *file)
{
    struct stat st;
    return stat(file, &st) == 0 ? st.st_size : -1;
}

/* A store has a head from its first moment on; without it and without a log all is lost, and a
 * coordinator that began anew would send its agents away. */
static bool is_emptied(const char *file)
{
    char log[4096];
    snprintf(log, sizeof log, "%s-wal", file);
    return file_bytes(file) == 0 && file_bytes(log) <= 0;
}

/* Stands beside a store while it is made: what is empty then has never held anything. */
static void mark_of(const char *file, char mark[4096])
{
    snprintf(mark, 4096, "%s-new", file);
}

/* Whether there is none yet, or its making was cut off; it is marked from here on. */
static int mark_make(const char *file, bool *fresh, struct err *e)
{
    char mark[4096];
    mark_of(file, mark);
    *fresh = file_bytes(file) < 0 || (is_emptied(file) && file_bytes(mark) >= 0);
    int fd = *fresh ? open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (*fresh && fd < 0)
        return err_set(e, errno == ENOSPC ? HP_ENOSPACE : HP_EIO, "cannot make it: %s",
                       strerror(errno));
    if (fd >= 0)
        close(fd);
    return 0;
}

static void mark_remove(const char *file)
{
    char mark[4096];
    mark_of(file, mark);
    unlink(mark);
}

/* Sessions and digests of keys are in it: nobody but its owner reads it, nor its log, which takes
 * over its mode. */
static int files_guard(const char *file, bool fresh, struct err *e)
{
    char log[4096];
    if (!fresh && is_emptied(file)) {
        err_set(e, HP_ECORRUPT, "the store is empty: what the coordinator knew was lost");
        return err_hint(e,
                        "put a copy of %s there, or remove the file to begin anew: then every "
                        "agent needs a new join token",
                        file);
    }
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(e, errno == ENOSPC ? HP_ENOSPACE : HP_EIO, "cannot open it: %s",
                       strerror(errno));
    int rc = fchmod(fd, 0600) == 0
                 ? 0
                 : err_set(e, HP_EIO, "cannot keep others from reading it: %s", strerror(errno));
    close(fd);
    if (rc == 0 && snprintf(log, sizeof log, "%s-wal", file) < (int)sizeof log &&
        chmod(log, 0600) != 0 && errno != ENOENT)
        rc = err_set(e, HP_EIO, "cannot keep others from reading %s: %s", log, strerror(errno));
    return rc;
}

int store_open_sqlite(const char *file, struct store **out, struct err *e)
{
    static const struct store_api api = {sqlite_close, sqlite_apply, sqlite_each};
    struct sqlite_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, HP_ENOMEM, "no memory for the store");
    s->base.api = &api;
    bool fresh = false;
    int rc = mark_make(file, &fresh, e);
    rc = rc < 0 ? rc : files_guard(file, fresh, e);
    if (rc == 0 && sqlite3_open_v2(file, &s->db,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                                   NULL) != SQLITE_OK)
        rc = sqlite_fail(s->db, "opening it", e);
    if (rc == 0)
        sqlite3_busy_timeout(s->db, LOCK_PATIENCE_MS);
    if (rc == 0)
        rc = sqlite_prepare(s, e);
    if (rc < 0) {
        err_at(e, "%s", file);
        sqlite_close(&s->base);
        if (fresh && is_emptied(file)) { /* the next start is the first again */
            unlink(file);
            mark_remove(file);
        }
        return rc;
    }
    mark_remove(file);
    *out = &s->base;
    return 0;
}
