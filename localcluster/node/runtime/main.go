// The container runtime of the real node: runc, told not to filter system calls.
//
// The kubelet asks for the runtime's default seccomp profile for every sandbox. runc can only do that with libseccomp, a C library that
// a machine need not have; this runc is built without. The profile is taken out of a bundle before runc sees it.
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	log.SetFlags(0)
	for at, argument := range os.Args {
		if value, found := strings.CutPrefix(argument, "--bundle="); found {
			unfilter(value)
		} else if argument == "--bundle" && at+1 < len(os.Args) {
			unfilter(os.Args[at+1])
		}
	}
	own, err := os.Executable()
	if err != nil {
		log.Fatalf("failed to find runc: %v", err)
	}
	runc := filepath.Join(filepath.Dir(own), "runc")
	log.Fatalf("failed to run %s: %v", runc, syscall.Exec(runc, append([]string{runc}, os.Args[1:]...), os.Environ()))
}

// unfilter takes the seccomp profile out of a bundle, and leaves every other byte of meaning as it is.
func unfilter(bundle string) {
	path := filepath.Join(bundle, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		log.Fatalf("failed to read %s: %v", path, err)
	}
	var config, linux map[string]json.RawMessage
	if err := json.Unmarshal(text, &config); err != nil {
		log.Fatalf("failed to read %s: %v", path, err)
	}
	if err := json.Unmarshal(config["linux"], &linux); err != nil {
		log.Fatalf("failed to read %s: %v", path, err)
	}
	if linux["seccomp"] == nil {
		return
	}
	delete(linux, "seccomp")
	if config["linux"], err = json.Marshal(linux); err != nil {
		log.Fatalf("failed to write %s: %v", path, err)
	}
	if text, err = json.Marshal(config); err != nil {
		log.Fatalf("failed to write %s: %v", path, err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		log.Fatalf("failed to write %s: %v", path, err)
	}
}
