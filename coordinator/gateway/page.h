/* The page that people look at in a browser: its files, which are part of the program. They hold
 * nothing of this cluster; what the page shows it asks the API for, with a key where that needs
 * one. */
#ifndef HP_COORDINATOR_GATEWAY_PAGE_H
#define HP_COORDINATOR_GATEWAY_PAGE_H

#include <stddef.h>

struct http_exchange;

struct page_file {
    const char *name, *type;
    size_t size;
    const char *bytes;
};

/* Written by tools/embed_page from the files of coordinator/gateway/page, openapi.json (which
 * describes the API) and the documents (as docs-NAME.md, listed in docs.json); the last has no
 * name.
 */
extern const struct page_file page_files[];

/* The file of that name, or 404. Scripts, styles and pictures are this server's own, and nothing
 * may stand inline: a text that gets into the page runs nowhere. */
void page_reply(struct http_exchange *x, const char *name);

#endif
