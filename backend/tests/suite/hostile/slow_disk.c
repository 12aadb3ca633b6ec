/* Preloaded into a program, makes each write that has to reach the disk take as long as on a slow one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static int slowly(const char *name, int file) {
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    nanosleep(&(struct timespec){.tv_nsec = SYNC_NANOSECONDS}, NULL);
    return sync(file);
}

int fsync(int file) { return slowly("fsync", file); }

int fdatasync(int file) { return slowly("fdatasync", file); }
