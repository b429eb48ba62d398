// The program of the test images: it serves its version and its environment on port 8080.
//
//	GET /version   the text in the file /version of the image
//	GET /env       the environment as a JSON object
//
// `/app env` prints the environment and ends, for `kubectl exec` in an image that holds nothing else. `STOP_SECONDS` in the environment
// is how long it takes to end when asked.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func environment() map[string]string {
	values := map[string]string{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	return values
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "env" {
		for _, entry := range os.Environ() {
			fmt.Println(entry)
		}
		return
	}
	version, err := os.ReadFile("/version")
	if err != nil {
		log.Fatalf("failed to read the version of this image: %v", err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		if seconds, err := strconv.Atoi(os.Getenv("STOP_SECONDS")); err == nil {
			time.Sleep(time.Duration(seconds) * time.Second)
		}
		os.Exit(0)
	}()
	http.HandleFunc("GET /version", func(answer http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(answer, string(version))
	})
	http.HandleFunc("GET /env", func(answer http.ResponseWriter, _ *http.Request) {
		answer.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(answer).Encode(environment()); err != nil {
			log.Printf("failed to answer: %v", err)
		}
	})
	log.Printf("serving %s", version)
	log.Fatal(http.ListenAndServe(":8080", nil))
}
