#include "coordinator/gateway/tls_files.h"

#include <gnutls/gnutls.h>
#include <sodium.h>

#include "common/fs.h"

enum { PEM_MAX_BYTES = 1 << 20 };

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

static int pair_check(const char *certificates, const char *key, const struct tls_files *t,
                      struct err *e)
{
    gnutls_certificate_credentials_t pair;
    gnutls_datum_t one = pem_datum(&t->certificates), other = pem_datum(&t->key);
    if (gnutls_certificate_allocate_credentials(&pair) < 0)
        return err_no_memory(e, "a certificate");
    int rc = gnutls_certificate_set_x509_key_mem(pair, &one, &other, GNUTLS_X509_FMT_PEM);
    gnutls_certificate_free_credentials(pair);
    if (rc >= 0)
        return 0;
    err_set(e, HP_EPARSE, "%s and %s are no certificate and its key: %s", certificates, key,
            gnutls_strerror(rc));
    return err_hint(e,
                    "both are PEM: the server's own certificate first, then those between it and "
                    "its authority; the key has no passphrase");
}

int tls_files_read(const char *certificates, const char *key, struct tls_files *out, struct err *e)
{
    *out = (struct tls_files){0};
    int rc = pem_read(certificates, "a certificate", &out->certificates, e);
    rc = rc < 0 ? rc : pem_read(key, "a key", &out->key, e);
    rc = rc < 0 ? rc : pair_check(certificates, key, out, e);
    if (rc < 0)
        tls_files_free(out);
    return rc;
}

void tls_files_free(struct tls_files *t)
{
    if (t->key.data)
        sodium_memzero(t->key.data, t->key.size);
    buffer_free(&t->key);
    buffer_free(&t->certificates);
}
