(** Boxes (Theorem S): the set of possible kernels is cut in two, again and again; what is certified in every part, for one and
    the same policy, holds. *)
Require Import Reals Lra Lia List Arith Bool.
From EBPI Require Import Sums Model Gap Pairs Dual Tree Mixture Main.
Open Scope R_scope.

(** A cut asks whether the mean of f under the law of row i is at most b. *)
Inductive tree := Leaf | Cut (i : nat) (f : nat -> R) (b : R) (below above : tree).

Section Boxes.
Variable M : mdp.
Definition kernels := (nat -> nat -> R) -> Prop.

(** Every leaf of the tree, with the kernels that lie in it, satisfies P. *)
Fixpoint in_every_leaf (t : tree) (C : kernels) (P : kernels -> Prop) : Prop :=
  match t with
  | Leaf => P C
  | Cut i f b below above =>
      in_every_leaf below (fun p => C p /\ mean (K M i) (p i) f <= b) P /\
      in_every_leaf above (fun p => C p /\ b <= mean (K M i) (p i) f) P
  end.

Lemma some_leaf t : forall C P p, in_every_leaf t C P -> C p -> exists C', P C' /\ C' p.
Proof.
  induction t as [|i f b below IHb above IHa]; intros C P p H Cp; simpl in H; [exists C; auto|].
  destruct H as [Hb Ha]. destruct (Rle_dec (mean (K M i) (p i) f) b) as [L|L].
  - apply (IHb _ _ _ Hb). auto.
  - apply (IHa _ _ _ Ha). split; [auto|lra].
Qed.

(** The bound on a ball cut by a box: every vector mu gives one (weak duality). *)
Lemma box_dual k (q f mu lo hi : nat -> R) u :
  (forall j, (j < k)%nat -> lo j <= q j <= hi j) ->
  mean k q (fun j => f j - mu j) <= u ->
  mean k q f <= rsum k (fun j => Rmax (mu j * hi j) (mu j * lo j)) + u.
Proof.
  intros B U. apply Rle_trans with (rsum k (fun j => q j * mu j) + mean k q (fun j => f j - mu j)).
  - right. unfold mean. rewrite <- rsum_plus. apply rsum_ext. intros; ring.
  - apply Rplus_le_compat; [|exact U]. apply rsum_le. intros j L. specialize (B j L).
    destruct (Rle_dec 0 (mu j)) as [S|S]; [apply Rle_trans with (2 := Rmax_l _ _)|apply Rle_trans with (2 := Rmax_r _ _)]; nra.
Qed.

(** What is checked in a leaf: checks of means that are sound for its kernels, and numbers that pass; or it is empty. *)
Definition leaf_ok (c : claim) (C : kernels) : Prop :=
  (forall p, ~ C p) \/
  exists up_ok lo_ok : nat -> (nat -> R) -> R -> Prop,
    (forall p, C p -> (forall i f u, up_ok i f u -> mean (K M i) (p i) f <= u) /\
                      (forall i f u, lo_ok i f u -> u <= mean (K M i) (p i) f)) /\
    exists nS em ep N occ rho, ends_ok c em ep /\ occ (c_H c) (c_s1 c) /\
      c_low c <= ln (Zp N (c_H c) (c_s1 c)) / c_beta c /\ ln (Zo N (c_H c) (c_s1 c)) / c_beta c <= c_up c /\
      ((gap_ok M nS up_ok lo_ok em ep (positive (c_beta c)) (c_pi c) N occ (c_H c) rho /\
        ln (rho (c_H c) (c_s1 c)) <= Rabs (c_beta c) * c_eps c) \/
       exists occ2 P, occ2 (c_H c) (c_s1 c) /\
        pairs_ok M nS up_ok lo_ok em ep (positive (c_beta c)) (c_pi c) N occ occ2 P rho (c_H c) /\
        ln (Rt P (c_H c) (c_s1 c) (c_s1 c)) <= Rabs (c_beta c) * c_eps c).

(** Theorem S, for any set of kernels that contains the true one. *)
Theorem leaves_sound t (C : kernels) c p :
  c_beta c <> 0 -> legal M (c_pi c) -> kernel M p -> C p -> in_every_leaf t C (leaf_ok c) -> claim_true M p c.
Proof.
  intros Hb Hpi Hp Cp OK. destruct (some_leaf t _ _ p OK Cp) as (C' & [E|L] & C'p); [exfalso; apply (E p C'p)|].
  destruct L as (up_ok & lo_ok & S & nS & em & ep & N & occ & rho & He & O & CL & CU & G).
  destruct (S p C'p) as [Hup Hlo]. apply claim_opt; auto.
  assert (GK : gap_ok M nS up_ok lo_ok em ep (positive (c_beta c)) (c_pi c) N occ (c_H c) rho).
  { destruct G as [[OK' _]|(occ2 & P & _ & (OK' & _) & _)]; auto. }
  destruct (value_certificate M nS up_ok lo_ok em ep (c_pi c) N occ (c_H c) (c_s1 c) (c_beta c) p (c_rew c)) as [A D]; auto.
  { apply GK. }
  { intros n s L O'. apply GK; auto. }
  unfold V_of. split; [lra|]. split; [lra|].
  destruct G as [(OK' & L)|(occ2 & P & O2 & OK' & L)].
  - apply (gap_certificate M nS up_ok lo_ok em ep (c_pi c) N occ (c_H c) rho); auto.
  - apply (pair_certificate M nS up_ok lo_ok em ep (c_pi c) N occ occ2 P (c_H c) rho); auto.
Qed.

Theorem boxes_sound t (B : nat -> (nat -> R) -> Prop) c p :
  c_beta c <> 0 -> legal M (c_pi c) -> kernel M p -> (forall i, B i (p i)) ->
  in_every_leaf t (fun p => kernel M p /\ forall i, B i (p i)) (leaf_ok c) -> claim_true M p c.
Proof. intros Hb Hpi Hp Hin OK. apply (leaves_sound t (fun p => kernel M p /\ forall i, B i (p i))); auto. Qed.

(** The error probability: balls from the data, a tree of cuts from the data, one policy for all leaves. *)
Theorem main_boxes rows delta most Q p (strat : history -> nat) (bad : history -> bool) :
  (forall i, (i < rows)%nat -> 0 < delta i) -> (forall i, (i < rows)%nat -> coding (K M i) (Q i) /\ forall o, 0 < Q i o) ->
  kernel M p -> (forall i, (support (K M i) (p i) <= most i)%nat) ->
  (forall h, bad h = true -> exists c t, c_beta c <> 0 /\ legal M (c_pi c) /\ ~ claim_true M p c /\
     in_every_leaf t (fun p => kernel M p /\ forall i, (i < rows)%nat -> ball (K M i) (counts h i) (radius M delta Q h i) (p i))
       (leaf_ok c)) ->
  forall T, Prob (K M) p strat T (ever bad) <= rsum rows delta.
Proof.
  intros Hd HQ Hp Hmost HA T.
  apply (union (K M) p Hp strat rows delta (fun i L => Rlt_le _ _ (Hd i L)) Q (fun i L => proj1 (HQ i L))).
  intros h P B. destruct (HA h B) as (c & t & Nb & Lg & F & OK).
  destruct (in_or_out M rows delta Hd Q HQ p Hp h P) as [O|O]; [exact O|].
  exfalso. apply F. apply (boxes_sound t (fun i q => (i < rows)%nat -> ball (K M i) (counts h i) (radius M delta Q h i) q)); auto.
Qed.
End Boxes.
