package seccomp

// hasX32: see isX32.
const hasX32 = false
