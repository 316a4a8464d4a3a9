/* The requests of a load (load_run.h), each a stream of its own: sent, heard, ended, asked for
 * again. Only load_run.c and load_stream.c include this. One thread. */
#ifndef HP_HPCTL_LOAD_STREAM_H
#define HP_HPCTL_LOAD_STREAM_H

#include <curl/curl.h>

#include "hpctl/load_loop.h"
#include "hpctl/load_run.h"
#include "hpctl/sse.h"

/* One request under way. */
struct load_stream {
    struct load_driver *driver;
    struct load_stream *next; /* of those that are idle */
    size_t index;             /* of the plan */
    CURL *curl;
    struct sse events;
    struct buffer body, whole; /* what is sent; an answer that is no stream */
    struct err why;
    bool ended; /* "[DONE]" came */
    /* of those that resume */
    struct curl_slist *headers;
    double lost_s;  /* since when nothing comes of it; 0: something does */
    double again_s; /* when it asks again */
};

/* What all streams of a load share. */
struct load_driver {
    struct load_run *run;
    struct load_loop loop;
    size_t next; /* of the plan, to be sent */
    struct curl_slist *headers;
    struct load_stream **streams;       /* all that were made */
    struct load_stream *idle, *waiting; /* waiting: to ask again */
    uint64_t name;                      /* of this run, in keys */
    size_t n_streams;
    char url[400];
};

/* Sends request `index` of the plan; where too many are open it stays unsent, which its result
 * says. HP_ENOMEM. */
int load_request_send(struct load_driver *d, size_t index, struct err *e);
/* A stream's transfer is over: its result says how, or it waits to ask again. */
void load_stream_finish(struct load_stream *s, CURLcode code);
/* Streams that waited long enough ask again. HP_ENOMEM. */
int load_streams_ask_again(struct load_driver *d, struct err *e);
void load_stream_destroy(struct load_stream *s);

#endif
