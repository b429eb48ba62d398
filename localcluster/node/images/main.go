// The registry of a real node, with the images of the tests in it.
//
// The images are made from two static programs beside this one: `pause:1` from pause, `app:v1` to `app:v3` from app, each with another
// text in /version. `app:v1-same` is another name of `app:v1`. Whatever registry an image is asked from, containerd asks here; names
// without one are looked for below library/, so everything is there twice. It holds everything in memory, and serves only once all is
// there.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	listen := flag.String("listen", "", "address to serve on")
	programs := flag.String("programs", "", "directory of the programs that the images hold")
	flag.Parse()
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if err := fill(handler, *programs); err != nil {
		log.Fatalf("failed to make the images: %v", err)
	}
	log.Printf("serving on %s", *listen)
	log.Fatal(http.ListenAndServe(*listen, handler))
}

// fill pushes all images, on an address that nobody else knows.
func fill(handler http.Handler, programs string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	defer server.Close()
	go server.Serve(listener)
	push := func(image v1.Image, names ...string) error {
		for _, each := range names {
			for _, folder := range []string{"", "library/"} {
				tag, err := name.NewTag(fmt.Sprintf("%s/%s%s", listener.Addr(), folder, each), name.Insecure)
				if err != nil {
					return err
				}
				if err := remote.Write(tag, image); err != nil {
					return fmt.Errorf("%s: %w", each, err)
				}
			}
		}
		return nil
	}
	pause, err := program(programs, "pause")
	if err != nil {
		return err
	}
	if err := push(pause, "pause:1"); err != nil {
		return err
	}
	app, err := program(programs, "app")
	if err != nil {
		return err
	}
	for _, version := range []string{"v1", "v2", "v3"} {
		image, err := layered(app, "version", 0o644, []byte(version))
		if err != nil {
			return err
		}
		names := []string{"app:" + version}
		if version == "v1" {
			names = append(names, "app:v1-same")
		}
		if err := push(image, names...); err != nil {
			return err
		}
	}
	return nil
}

// program is an image that holds one program and starts it.
func program(programs, file string) (v1.Image, error) {
	content, err := os.ReadFile(filepath.Join(programs, file))
	if err != nil {
		return nil, err
	}
	image, err := layered(empty.Image, file, 0o755, content)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = []string{"/" + file}
	return mutate.ConfigFile(image, config)
}

// layered adds a layer with one file. Same content, same digest: nothing in it tells the time.
func layered(image v1.Image, file string, mode int64, content []byte) (v1.Image, error) {
	var layer bytes.Buffer
	writer := tar.NewWriter(&layer)
	header := &tar.Header{Name: file, Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if err := writer.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := writer.Write(content); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, made)
}
