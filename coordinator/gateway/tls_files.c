#include "coordinator/gateway/tls_files.h"

#include <gnutls/gnutls.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/bytes.h"
#include "common/fs.h"
#include "common/log.h"

enum { PEM_MAX_BYTES = 1 << 20 };

struct tls_pair {
    gnutls_certificate_credentials_t credentials;
    int holders;
};

/* What tells a file from the one that was there before. */
struct file_mark {
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec written;
};

struct tls_files {
    char *certificates, *key;
    struct file_mark marks[2]; /* when they were last read, or tried */
    struct tls_pair *pair;
};

/* ---- a pair ---- */

static int pem_read(const char *file, const char *what, struct buffer *out, struct err *e)
{
    int rc = fs_file_read(file, PEM_MAX_BYTES, out, e);
    if (rc < 0)
        return rc;
    buffer_append(out, "", 1);
    return out->failed ? err_no_memory(e, "%s", what) : 0;
}

static gnutls_datum_t pem_datum(const struct buffer *pem)
{
    return (gnutls_datum_t){pem->data, (unsigned)pem->size - 1};
}

static int pair_set(const struct tls_files *t, const struct buffer *certificates,
                    const struct buffer *key, struct tls_pair *p, struct err *e)
{
    gnutls_datum_t one = pem_datum(certificates), other = pem_datum(key);
    int rc = gnutls_certificate_set_x509_key_mem(p->credentials, &one, &other, GNUTLS_X509_FMT_PEM);
    if (rc >= 0)
        return 0;
    err_set(e, HP_EPARSE, "%s and %s are no certificate and its key: %s", t->certificates, t->key,
            gnutls_strerror(rc));
    return err_hint(e,
                    "both are PEM: the server's own certificate first, then those between it and "
                    "its authority; the key has no passphrase");
}

static int pair_create(const struct tls_files *t, const struct buffer *certificates,
                       const struct buffer *key, struct tls_pair **out, struct err *e)
{
    struct tls_pair *p = calloc(1, sizeof *p);
    if (!p || gnutls_certificate_allocate_credentials(&p->credentials) < 0) {
        free(p);
        return err_no_memory(e, "a certificate");
    }
    p->holders = 1;
    int rc = pair_set(t, certificates, key, p, e);
    if (rc < 0)
        tls_pair_release(&p);
    *out = p;
    return rc;
}

static int pair_read(const struct tls_files *t, struct tls_pair **out, struct err *e)
{
    struct buffer certificates = {0}, key = {0};
    int rc = pem_read(t->certificates, "a certificate", &certificates, e);
    rc = rc < 0 ? rc : pem_read(t->key, "a key", &key, e);
    rc = rc < 0 ? rc : pair_create(t, &certificates, &key, out, e);
    if (key.data)
        sodium_memzero(key.data, key.size);
    buffer_free(&key);
    buffer_free(&certificates);
    return rc;
}

void tls_pair_release(struct tls_pair **self)
{
    struct tls_pair *p = *self;
    *self = NULL;
    if (!p || --p->holders > 0)
        return;
    gnutls_certificate_free_credentials(p->credentials);
    free(p);
}

gnutls_certificate_credentials_t tls_pair_credentials(const struct tls_pair *p)
{
    return p->credentials;
}

/* ---- the files ---- */

static struct file_mark file_look(const char *file)
{
    struct stat st;
    struct file_mark m = {0};
    if (stat(file, &st) == 0)
        m = (struct file_mark){st.st_dev, st.st_ino, st.st_size, st.st_mtim};
    return m;
}

static bool mark_equal(const struct file_mark *a, const struct file_mark *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->written.tv_sec == b->written.tv_sec && a->written.tv_nsec == b->written.tv_nsec;
}

/* True when they are others than last time. */
static bool files_look(struct tls_files *t)
{
    const struct file_mark now[2] = {file_look(t->certificates), file_look(t->key)};
    bool changed = !mark_equal(&now[0], &t->marks[0]) || !mark_equal(&now[1], &t->marks[1]);
    memcpy(t->marks, now, sizeof now);
    return changed;
}

int tls_files_open(const char *certificates, const char *key, struct tls_files **out, struct err *e)
{
    struct tls_files *t = *out = calloc(1, sizeof *t);
    if (!t)
        return err_no_memory(e, "a certificate");
    t->certificates = strdup(certificates);
    t->key = strdup(key);
    int rc = t->certificates && t->key ? 0 : err_no_memory(e, "a certificate");
    if (rc == 0) {
        files_look(t);
        rc = pair_read(t, &t->pair, e);
    }
    if (rc < 0)
        tls_files_close(out);
    return rc;
}

void tls_files_close(struct tls_files **self)
{
    struct tls_files *t = *self;
    *self = NULL;
    if (!t)
        return;
    tls_pair_release(&t->pair);
    free(t->certificates);
    free(t->key);
    free(t);
}

static void files_read_again(struct tls_files *t)
{
    struct err e = {0};
    struct tls_pair *fresh = NULL;
    if (pair_read(t, &fresh, &e) < 0) {
        log_warn("gateway", "certificate_kept", "file=%s why=\"%s\"", t->certificates, e.text);
        return;
    }
    tls_pair_release(&t->pair);
    t->pair = fresh;
    log_info("gateway", "certificate_renewed", "file=%s", t->certificates);
}

struct tls_pair *tls_files_take(struct tls_files *t)
{
    if (files_look(t))
        files_read_again(t);
    t->pair->holders++;
    return t->pair;
}
