/* The certificate and the key that a server is given as files, as the files are: who renews a
 * certificate writes them anew, and connections that are made from then on have the new one. */
#ifndef HP_COORDINATOR_GATEWAY_TLS_FILES_H
#define HP_COORDINATOR_GATEWAY_TLS_FILES_H

#include "common/status.h"

struct tls_files;
struct tls_pair; /* a certificate and its key as they once were; counted, of one thread */
struct gnutls_certificate_credentials_st;

/* Reads both and sees that they belong together. HP_EPARSE and what fs.h says, with the file. Who
 * may read the key is not looked at: services get theirs by links and groups. */
int tls_files_open(const char *certificates, const char *key, struct tls_files **out,
                   struct err *e);
void tls_files_close(struct tls_files **t);
/* For a new connection, until it is released: what the files have become, if they have changed and
 * belong together, else what was there before. One that is half renewed is said once in the log. */
struct tls_pair *tls_files_take(struct tls_files *t);
void tls_pair_release(struct tls_pair **p);
struct gnutls_certificate_credentials_st *tls_pair_credentials(const struct tls_pair *p);

#endif
