/* Preloaded into a program, lets its disk be full while the file FULL exists, after BUDGET more bytes: of a write to a regular file, the
   part that has room is written, and then none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long budget = BUDGET;

/* How much of a write has room; less than 0 if none has. */
static ssize_t room(int file, size_t bytes) {
    struct stat status;
    if (file <= STDERR_FILENO || bytes == 0 || fstat(file, &status) || !S_ISREG(status.st_mode)) return bytes;
    if (access(FULL, F_OK)) {
        budget = BUDGET;
        return bytes;
    }
    long left = atomic_fetch_sub(&budget, (long)bytes);
    if (left > 0) return left < (long)bytes ? left : (ssize_t)bytes;
    errno = ENOSPC;
    return -1;
}

ssize_t write(int file, const void *from, size_t bytes) {
    ssize_t (*next)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    ssize_t taken = room(file, bytes);
    return taken < 0 ? -1 : next(file, from, taken);
}

ssize_t pwrite64(int file, const void *from, size_t bytes, off64_t at) {
    ssize_t (*next)(int, const void *, size_t, off64_t) =
        (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    ssize_t taken = room(file, bytes);
    return taken < 0 ? -1 : next(file, from, taken, at);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t at) { return pwrite64(file, from, bytes, at); }
