// The provisioner of the local cluster: it plays the storage system.
//
// For each pending claim of its two storage classes it makes a volume, to which the volume controller then binds the claim. When a
// bound claim asks for more than its volume has, the volume grows and the claim's status follows. Volumes whose claims are gone are
// removed. Two annotations on a claim shape it for tests: `sim.flotilla.rs/resize: never` leaves it as it is, and
// `sim.flotilla.rs/resize: offline` grows the volume but lets the file system wait (condition FileSystemResizePending) until a pod
// that mounts the claim was created after that.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	provisioner = "volumes.sim.flotilla.rs"
	resize      = "sim.flotilla.rs/resize"
)

type storage struct {
	client kubernetes.Interface
	claims cache.Store
	pods   cache.Store
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatalf("failed to read %s: %v", *kubeconfig, err)
	}
	config.QPS, config.Burst = 1000, 2000
	client := kubernetes.NewForConfigOrDie(config)
	factory := informers.NewSharedInformerFactory(client, 30*time.Second)
	claims := factory.Core().V1().PersistentVolumeClaims().Informer()
	volumes := factory.Core().V1().PersistentVolumes().Informer()
	pods := factory.Core().V1().Pods().Informer()
	s := &storage{client: client, claims: claims.GetStore(), pods: pods.GetStore()}
	on := func(handle func(any)) cache.ResourceEventHandlerFuncs {
		return cache.ResourceEventHandlerFuncs{AddFunc: handle, UpdateFunc: func(_, object any) { handle(object) }}
	}
	claims.AddEventHandler(on(func(object any) { s.tell("claim", s.claim(object.(*corev1.PersistentVolumeClaim))) }))
	volumes.AddEventHandler(on(func(object any) { s.tell("volume", s.volume(object.(*corev1.PersistentVolume))) }))
	pods.AddEventHandler(on(func(object any) { s.pod(object.(*corev1.Pod)) }))
	factory.Start(context.Background().Done())
	select {}
}

// tell logs what went wrong. The object comes again with its next change, or with the next resync.
func (s *storage) tell(what string, err error) {
	if err != nil && !errors.IsConflict(err) && !errors.IsNotFound(err) && !errors.IsAlreadyExists(err) {
		log.Printf("%s: %v", what, err)
	}
}

func (s *storage) claim(claim *corev1.PersistentVolumeClaim) error {
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	if class != "standard" && class != "fixed" || claim.DeletionTimestamp != nil {
		return nil
	}
	if claim.Status.Phase == corev1.ClaimBound {
		return s.grow(claim)
	}
	if claim.Spec.VolumeName != "" {
		return nil
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pv-" + string(claim.UID),
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              class,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: provisioner, VolumeHandle: string(claim.UID)},
			},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}
	_, err := s.client.CoreV1().PersistentVolumes().Create(context.Background(), volume, metav1.CreateOptions{})
	return err
}

// grow lets a bound claim have what it asks for.
func (s *storage) grow(claim *corev1.PersistentVolumeClaim) error {
	wants, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	if wants.Cmp(has) <= 0 || claim.Annotations[resize] == "never" {
		return nil
	}
	capacity := map[string]any{"spec": map[string]any{"capacity": map[string]any{"storage": wants.String()}}}
	if err := s.patchVolume(claim.Spec.VolumeName, capacity); err != nil {
		return err
	}
	status := map[string]any{"capacity": map[string]any{"storage": wants.String()}, "conditions": []any{}}
	if claim.Annotations[resize] == "offline" {
		since := pendingSince(claim)
		switch {
		case since == nil:
			status = map[string]any{"conditions": []any{map[string]any{
				"type": "FileSystemResizePending", "status": "True", "lastTransitionTime": metav1.Now(),
			}}}
		case !s.isMountedSince(claim, since):
			return nil
		}
	}
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(
		context.Background(), claim.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

func pendingSince(claim *corev1.PersistentVolumeClaim) *metav1.Time {
	for _, condition := range claim.Status.Conditions {
		if condition.Type == corev1.PersistentVolumeClaimFileSystemResizePending && condition.Status == corev1.ConditionTrue {
			return &condition.LastTransitionTime
		}
	}
	return nil
}

// isMountedSince tells whether a running pod that mounts the claim was created at that moment or later.
func (s *storage) isMountedSince(claim *corev1.PersistentVolumeClaim, since *metav1.Time) bool {
	for _, object := range s.pods.List() {
		pod := object.(*corev1.Pod)
		if pod.Namespace == claim.Namespace && pod.Status.Phase == corev1.PodRunning &&
			!pod.CreationTimestamp.Before(since) && mounts(pod, claim.Name) {
			return true
		}
	}
	return false
}

func mounts(pod *corev1.Pod, claim string) bool {
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == claim {
			return true
		}
	}
	return false
}

// pod looks again at the claims of a pod that has begun to run.
func (s *storage) pod(pod *corev1.Pod) {
	if pod.Status.Phase != corev1.PodRunning {
		return
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		object, exists, err := s.claims.GetByKey(fmt.Sprintf("%s/%s", pod.Namespace, volume.PersistentVolumeClaim.ClaimName))
		if err == nil && exists {
			s.tell("claim", s.claim(object.(*corev1.PersistentVolumeClaim)))
		}
	}
}

// volume removes a volume whose claim is gone.
func (s *storage) volume(volume *corev1.PersistentVolume) error {
	if volume.Annotations["pv.kubernetes.io/provisioned-by"] != provisioner || volume.Status.Phase != corev1.VolumeReleased {
		return nil
	}
	return s.client.CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{})
}

func (s *storage) patchVolume(name string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().PersistentVolumes().Patch(context.Background(), name, types.MergePatchType, text, metav1.PatchOptions{})
	return err
}
