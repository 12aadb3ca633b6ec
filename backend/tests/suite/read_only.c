/* Preloaded into a program, lets the disk of the files whose paths begin with FOLDER be read-only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static int refuse(const char *path, int flags) {
    int writes = (flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT;
    if (!writes || strncmp(path, FOLDER, sizeof FOLDER - 1)) return 0;
    /* What is there already is the first thing that the system looks at. */
    if (flags & O_EXCL && !access(path, F_OK)) return 0;
    errno = EROFS;
    return 1;
}

#define OPEN(name)                                                                                          \
    int name(const char *path, int flags, ...) {                                                            \
        va_list words;                                                                                      \
        va_start(words, flags);                                                                             \
        mode_t mode = va_arg(words, mode_t);                                                                \
        va_end(words);                                                                                      \
        int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name);     \
        return refuse(path, flags) ? -1 : next(path, flags, mode);                                          \
    }

OPEN(open)
OPEN(open64)
