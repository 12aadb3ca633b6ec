/* A system clock that is off: loaded into a program before its other libraries. The filter asks Envoy for the time, and Envoy the C library. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (syscall(SYS_clock_gettime, clock, now) != 0) {
        return -1;
    }
    if (clock == CLOCK_REALTIME) {
        long long nanoseconds = now->tv_nsec + AHEAD_MS * 1000000LL;
        long long seconds = nanoseconds / 1000000000LL;
        nanoseconds %= 1000000000LL;
        if (nanoseconds < 0) {
            nanoseconds += 1000000000LL;
            seconds -= 1;
        }
        now->tv_sec += seconds;
        now->tv_nsec = nanoseconds;
    }
    return 0;
}
