/* The certificate and the key that a server is given as files. */
#ifndef HP_COORDINATOR_GATEWAY_TLS_FILES_H
#define HP_COORDINATOR_GATEWAY_TLS_FILES_H

#include "common/bytes.h"
#include "common/status.h"

struct tls_files {
    struct buffer certificates, key; /* PEM, with a NUL behind */
};

/* Reads both and sees that they belong together. HP_EPARSE and what fs.h says, with the file. Who
 * may read the key is not looked at: services get theirs by links and groups. */
int tls_files_read(const char *certificates, const char *key, struct tls_files *out, struct err *e);
/* Overwrites the key. */
void tls_files_free(struct tls_files *t);

#endif
