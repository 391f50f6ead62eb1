{{/* Prefix of all names. */}}
{{- define "thingway.name" -}}
{{- if .Values.fullnameOverride -}}{{ .Values.fullnameOverride }}
{{- else if contains "thingway" .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-thingway" .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "thingway.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{/* Selector labels of a part's pods. Argument: (list $ "part"). */}}
{{- define "thingway.selector" -}}
app.kubernetes.io/name: thingway
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of a part's object. Argument: (list $ "part"). */}}
{{- define "thingway.labels" -}}
{{ include "thingway.selector" . }}
app.kubernetes.io/part-of: thingway
app.kubernetes.io/version: {{ (index . 0).Values.image.tag | default (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version }}
{{- end -}}

{{/* Metadata of a part's object. Argument: (list $ "part"). */}}
{{- define "thingway.metadata" -}}
name: {{ include "thingway.name" (index . 0) }}-{{ index . 1 }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "thingway.labels" . | nindent 2 }}
{{- end -}}

{{/* Host names of a StatefulSet's members as a JSON list. Argument: (list $ "mongo"). A pod's
/etc/hosts contains its name, so a member finds itself before DNS has its new address. */}}
{{- define "thingway.members" -}}
{{- $root := index . 0 -}}{{- $part := index . 1 -}}
{{- $set := printf "%s-%s" (include "thingway.name" $root) $part -}}
{{- $hosts := list -}}
{{- range until (int (index $root.Values $part).members) -}}
{{- $hosts = append $hosts (printf "%s-%d.%s-members.%s.svc.%s" $set . $set $root.Release.Namespace $root.Values.clusterDomain) -}}
{{- end -}}
{{- toJson $hosts -}}
{{- end -}}

{{- define "thingway.mongoHosts" -}}
{{- $hosts := list -}}
{{- range include "thingway.members" (list . "mongo") | fromJsonArray -}}{{- $hosts = append $hosts (printf "%s:27017" .) -}}{{- end -}}
{{- join "," $hosts -}}
{{- end -}}

{{/* "true" if the gateway terminates TLS itself, else empty. */}}
{{- define "thingway.gatewayTls" -}}
{{- if and .Values.tls.enabled .Values.tls.gateway }}true{{ end -}}
{{- end -}}

{{- define "thingway.gatewayPort" -}}
{{ .Values.service.port | default (eq (include "thingway.gatewayTls" .) "true" | ternary 443 80) }}
{{- end -}}

{{- define "thingway.natsUrl" -}}
{{- if .Values.nats.embedded -}}{{ .Values.tls.enabled | ternary "tls" "nats" }}://{{ include "thingway.name" . }}-nats:4222
{{- else -}}{{ required "nats.external.url" .Values.nats.external.url }}{{- end -}}
{{- end -}}

{{- define "thingway.mqttUrl" -}}
{{- if .Values.nats.embedded -}}{{ .Values.tls.enabled | ternary "mqtts" "mqtt" }}://{{ include "thingway.name" . }}-nats:{{ .Values.tls.enabled | ternary 8883 1883 }}
{{- else -}}{{ required "nats.external.mqttUrl" .Values.nats.external.mqttUrl }}{{- end -}}
{{- end -}}

{{- define "thingway.gatewayUrl" -}}
{{ eq (include "thingway.gatewayTls" .) "true" | ternary "https" "http" }}://{{ include "thingway.name" . }}-gateway:{{ include "thingway.gatewayPort" . }}
{{- end -}}

{{/* Settings of every pod. */}}
{{- define "thingway.allPods" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* User and groups of a pod. Argument: user id; 0: the cluster assigns them. */}}
{{- define "thingway.user" -}}
{{- with int . -}}
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
{{- end -}}
{{- end -}}

{{/* Owner of a volume for chown. Argument: user id. */}}
{{- define "thingway.owner" -}}
{{- if not (int .) }}{{ fail "volumePermissions needs the user ids: userIds must not be 0" }}{{ end -}}
{{ int . }}:{{ int . }}
{{- end -}}

{{/* Security of our pods: no privileges, and no access to the API server. */}}
{{- define "thingway.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  {{- include "thingway.user" .Values.userIds.thingway | nindent 2 }}
  seccompProfile: {type: RuntimeDefault}
{{- include "thingway.allPods" . }}
{{- end -}}

{{- define "thingway.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* The certificate authority that our containers trust. */}}
{{- define "thingway.trust" -}}
{{- if .Values.tls.enabled }}
- {name: THINGWAY_CA_FILE, value: /tls/ca.crt}
{{- end }}
{{- end -}}

{{- define "thingway.ours" -}}
image: {{ include "thingway.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{ include "thingway.containerSecurity" . }}
{{- end -}}

{{/* Mounts of our containers: `/secrets` and the common mounts. */}}
{{- define "thingway.mounts" -}}
- {name: secrets, mountPath: /secrets, readOnly: true}
{{ include "thingway.commonMounts" . }}
{{- end -}}

{{/* Mounts of containers without an own Secret. */}}
{{- define "thingway.commonMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /tls, readOnly: true}
{{- end }}
{{- end -}}

{{/* Volumes of all pods. Argument: (list $ "true") for a TLS server, (list $ "") mounts only `ca.crt`. */}}
{{- define "thingway.commonVolumes" -}}
{{- $tls := (index . 0).Values.tls -}}
- {name: tmp, emptyDir: {}}
{{- if $tls.enabled }}
{{- $secret := required "tls.enabled requires tls.secret" $tls.secret }}
- name: tls
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ $tls.ca.secret | default $secret }}
          items: [{key: {{ $tls.ca.key }}, path: ca.crt}]
      {{- if index . 1 }}
      - secret:
          name: {{ $secret }}
          items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
      {{- end }}
{{- end }}
{{- end -}}

{{/* Volumes with the part's Secret. Argument: (list $ "part"). */}}
{{- define "thingway.volumes" -}}
- name: secrets
  secret: {secretName: {{ include "thingway.name" (index . 0) }}-{{ index . 1 }}, defaultMode: 0440}
{{ include "thingway.commonVolumes" (list (index . 0) (or (eq (index . 1) "nats") (and (eq (index . 1) "gateway") (include "thingway.gatewayTls" (index . 0))))) }}
{{- end -}}

{{/* Environment of a job that uses all stores. The URLs of external stores contain passwords, so no
argument contains them. Argument: (list $ "key of MongoDB's URL"). */}}
{{- define "thingway.stores" -}}
{{- $root := index . 0 -}}{{- $mongo := $root.Values.mongo -}}{{- $redis := $root.Values.redis -}}
- {name: THINGWAY_DATA, value: /state}
- {name: THINGWAY_NATS_URL, value: {{ include "thingway.natsUrl" $root | quote }}}
- name: THINGWAY_MONGO_URL
  {{- if $mongo.embedded }}
  value: mongodb://{{ include "thingway.mongoHosts" $root }}/?replicaSet=rs0
  {{- else }}
  valueFrom: {secretKeyRef: {name: {{ required "mongo.external.secret" $mongo.external.secret }}, key: {{ index . 1 }}}}
  {{- end }}
- name: THINGWAY_REDIS_URL
  {{- if $redis.embedded }}
  value: redis://{{ include "thingway.name" $root }}-redis:6379/0
  {{- else }}
  valueFrom: {secretKeyRef: {name: {{ required "redis.external.secret" $redis.external.secret }}, key: auth}}
  {{- end }}
{{ include "thingway.trust" $root }}
{{- end -}}

{{/* The volume with all secrets, for jobs that use all stores. */}}
{{- define "thingway.state" -}}
- name: state
  secret: {secretName: {{ include "thingway.name" . }}-setup, defaultMode: 0440}
{{ include "thingway.commonVolumes" (list . "") }}
{{- end -}}

{{/* `extraVolumes` of a job. Their names differ from those of the job's own volumes.
Argument: (list values "prefix of names"). */}}
{{- define "thingway.extraVolumes" -}}
{{- $prefix := index . 1 -}}
{{- range (index . 0).extraVolumes }}
- {{ set (deepCopy .) "name" (printf "%s-%s" $prefix .name) | toJson }}
{{- end }}
{{- end -}}

{{/* `extraVolumeMounts` of a job's container. Argument: as that of `thingway.extraVolumes`. */}}
{{- define "thingway.extraMounts" -}}
{{- $prefix := index . 1 -}}
{{- range (index . 0).extraVolumeMounts }}
- {{ set (deepCopy .) "name" (printf "%s-%s" $prefix .name) | toJson }}
{{- end }}
{{- end -}}

{{- define "thingway.backupClaim" -}}
{{ .Values.backup.existingClaim | default (printf "%s-backup" (include "thingway.name" .)) }}
{{- end -}}

{{/* Optional init container that changes the owner of the volume of backups. */}}
{{- define "thingway.backupPermissions" -}}
{{- if .Values.volumePermissions -}}
initContainers:
  - name: volume-permissions
    image: {{ include "thingway.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command: [chown, "{{ include "thingway.owner" .Values.userIds.thingway }}", /backups]
    {{- include "thingway.chownSecurity" . | nindent 4 }}
    volumeMounts: [{name: backups, mountPath: /backups}]
{{- end -}}
{{- end -}}

{{/* Address, credentials and authority of the S3-compatible storage of backups. */}}
{{- define "thingway.s3" -}}
{{- with .Values.backup.s3 }}
{{- with .endpoint }}
- {name: AWS_ENDPOINT_URL_S3, value: {{ . | quote }}}
{{- end }}
{{- with .region }}
- {name: AWS_DEFAULT_REGION, value: {{ . | quote }}}
{{- end }}
{{- if .secret }}
{{- $secret := .secret }}
{{- range list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: {{ . }}}}
{{- end }}
- name: AWS_SESSION_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .secret }}, key: AWS_SESSION_TOKEN, optional: true}}
{{- end }}
{{- if .authority }}
- {name: AWS_CA_BUNDLE, value: /s3/ca.crt}
{{- end }}
{{- end }}
{{- end -}}

{{- define "thingway.s3Mount" -}}
{{- if .Values.backup.s3.authority }}
- {name: s3, mountPath: /s3, readOnly: true}
{{- end }}
{{- end -}}

{{- define "thingway.s3Volume" -}}
{{- with .Values.backup.s3.authority }}
- name: s3
  secret: {secretName: {{ . }}, items: [{key: ca.crt, path: ca.crt}], defaultMode: 0440}
{{- end }}
{{- end -}}

{{/* The service account of pods that use backups, for a role of the cloud. */}}
{{- define "thingway.backupAccount" -}}
{{- with .Values.backup.serviceAccount -}}
serviceAccountName: {{ . }}
{{- end -}}
{{- end -}}

{{/* The passphrase of backups. Argument: {secret, key}. */}}
{{- define "thingway.passphrase" -}}
{{- if .secret -}}
- name: THINGWAY_BACKUP_PASSPHRASE
  valueFrom: {secretKeyRef: {name: {{ .secret }}, key: {{ .key }}}}
{{- end -}}
{{- end -}}

{{- define "thingway.smallResources" -}}
resources:
  requests: {cpu: 20m, memory: 64Mi}
  limits: {memory: 256Mi}
{{- end -}}

{{/* A job's service account, which may write and read only the Secrets of the listed parts.
Argument: (list $ "job" (list "part" …) "hooks"). */}}
{{- define "thingway.jobAccount" -}}
{{- $root := index . 0 -}}{{- $job := index . 1 -}}{{- $metadata := include "thingway.metadata" (list $root $job) -}}
{{- $hook := printf "annotations:\n  helm.sh/hook: %s\n  helm.sh/hook-weight: \"-5\"\n  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded" (index . 3) -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- $metadata | nindent 2 }}
  {{- $hook | nindent 2 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- $metadata | nindent 2 }}
  {{- $hook | nindent 2 }}
rules:
  - apiGroups: [""]
    resources: [secrets]
    verbs: [get, create, patch]
    resourceNames:
      {{- range index . 2 }}
      - {{ include "thingway.name" $root }}-{{ . }}
      {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- $metadata | nindent 2 }}
  {{- $hook | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ include "thingway.name" $root }}-{{ $job }}}
subjects:
  - {kind: ServiceAccount, name: {{ include "thingway.name" $root }}-{{ $job }}, namespace: {{ $root.Release.Namespace }}}
{{- end -}}

{{/* Common pod settings of all servers. Argument: (list $ "part"). */}}
{{- define "thingway.serverPod" -}}
{{- $root := index . 0 -}}{{- $part := index . 1 -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  {{- include "thingway.user" (index $root.Values.userIds $part) | nindent 2 }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- include "thingway.allPods" $root }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ $root.Values.defaults.topologySpread.topologyKey }}
    whenUnsatisfiable: {{ $root.Values.defaults.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "thingway.selector" (list $root $part) | nindent 8 }}
{{- end -}}

{{/* Security of the optional init container that runs as root. */}}
{{- define "thingway.chownSecurity" -}}
securityContext:
  runAsUser: 0
  runAsNonRoot: false
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL], add: [CHOWN]}
{{- end -}}

{{/* Optional init container that changes the volume's owner. Argument: (list $ "part"). */}}
{{- define "thingway.volumePermissions" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.volumePermissions -}}
- name: volume-permissions
  image: {{ (index $root.Values (index . 1)).image }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  command: [chown, "{{ include "thingway.owner" (index $root.Values.userIds (index . 1)) }}", /data]
  {{- include "thingway.chownSecurity" $root | nindent 2 }}
  volumeMounts: [{name: data, mountPath: /data}]
{{- end -}}
{{- end -}}

{{/* Volume claim of a server. Argument: (list $ "part"). */}}
{{- define "thingway.claims" -}}
{{- $storage := (index (index . 0).Values (index . 1)).storage -}}
volumeClaimTemplates:
  - metadata:
      name: data
      labels:
        {{- include "thingway.selector" . | nindent 8 }}
    spec:
      accessModes: [ReadWriteOnce]
      {{- with $storage.className }}
      storageClassName: {{ . }}
      {{- end }}
      resources: {requests: {storage: {{ $storage.size }}}}
{{- end -}}

{{- define "thingway.exporterPort" -}}
{{ get (dict "mongo" 9216 "nats" 7777 "redis" 9121) . }}
{{- end -}}

{{/* Optional exporter of a store for Prometheus. Argument: (list $ "part" (list "argument" …)
(dict "VARIABLE" "value" …)). `$(PASSWORD)` in a value is the password of its user. */}}
{{- define "thingway.exporter" -}}
{{- $root := index . 0 -}}{{- $part := index . 1 -}}
{{- with index $root.Values.monitoring.exporters $part -}}
- name: exporter
  image: {{ . }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  {{- include "thingway.containerSecurity" $root | nindent 2 }}
  args: {{ toJson (index $ 2) }}
  {{- with index $ 3 }}
  env:
    - name: PASSWORD
      valueFrom: {secretKeyRef: {name: {{ include "thingway.name" $root }}-{{ $part }}, key: exporter}}
    {{- range $variable, $value := . }}
    - {name: {{ $variable }}, value: {{ $value | quote }}}
    {{- end }}
  {{- end }}
  ports: [{name: metrics, containerPort: {{ include "thingway.exporterPort" $part }}}]
  {{- include "thingway.smallResources" $root | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The ingress rule of an exporter. Argument: (list $ "part"). */}}
{{- define "thingway.exporterIngress" -}}
{{- $values := (index . 0).Values -}}
{{- if and (index $values.monitoring.exporters (index . 1)) $values.networkPolicies.metricsFrom -}}
- {ports: [{port: {{ include "thingway.exporterPort" (index . 1) }}}], from: {{ toJson $values.networkPolicies.metricsFrom }}}
{{- end -}}
{{- end -}}

{{/* Headless Service and disruption budget of a StatefulSet. Argument:
(list $ "part" (list {port} …)). */}}
{{- define "thingway.serverObjects" -}}
{{- $ports := index . 2 -}}
{{- if index (index . 0).Values.monitoring.exporters (index . 1) -}}
{{- $ports = append $ports (dict "name" "metrics" "port" (include "thingway.exporterPort" (index . 1) | int)) -}}
{{- end -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "thingway.metadata" (list (index . 0) (printf "%s-members" (index . 1))) | nindent 2 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "thingway.selector" . | nindent 4 }}
  ports: {{ toJson $ports }}
{{- if (index . 0).Values.podDisruptionBudgets }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "thingway.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "thingway.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{/* A network policy peer: the pods of some parts. Argument: (list labels (list "part" …)). */}}
{{- define "thingway.peers" -}}
podSelector:
  matchLabels: {{ toJson (index . 0) }}
  matchExpressions:
    - {key: app.kubernetes.io/component, operator: In, values: {{ toJson (index . 1) }}}
{{- end -}}

{{- define "thingway.dns" -}}
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
{{- end -}}
